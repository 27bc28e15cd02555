#include "comm/init/run_rank.h"

#include <exception>

#include "comm/error.h"

namespace fsdptrain::comm {

int run_rank(const JobOptions& options, const std::function<int(Job&)>& body) {
  Job job = init_from_environment(options);
  try {
    const int result = body(job);
    job.close();
    return result;
  } catch (...) {
    job.fail(text_of(std::current_exception()));
    throw;
  }
}

}  // namespace fsdptrain::comm
