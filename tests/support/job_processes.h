#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace fsdptrain::testing {

// A process of tests/comm/init/job_worker.cpp with an environment of its own. `inherited`: numbers
// that descriptors of this process have there.
inline ChildProcess job_process(const Environment& environment,
                                const std::vector<std::string>& arguments,
                                const std::map<int, int>& inherited = {}) {
  std::vector<std::string> words{FSDPTRAIN_JOB_WORKER};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return ChildProcess({.program = FSDPTRAIN_JOB_WORKER,
                       .arguments = std::move(words),
                       .environment = environment,
                       .descriptors = inherited});
}

}  // namespace fsdptrain::testing
