#pragma once

#include <functional>

#include "comm/init/init.h"

namespace fsdptrain::comm {

// Runs `body` as one rank of the job that the environment says, or as its only rank, on this
// thread; what it returns. All ranks come to its end, or end with the failure of the first that
// does not.
int run_rank(const JobOptions& options, const std::function<int(Job&)>& body);

}  // namespace fsdptrain::comm
