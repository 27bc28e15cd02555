#pragma once

#include <string>
#include <string_view>

#include <nccl.h>

namespace fsdptrain::comm::nccl {

// "ncclRemoteError (remote process exited or there was a network error)" and what the communicator
// said last, if it said anything; `comm` may be null.
std::string describe(ncclResult_t result, ncclComm_t comm);

// PeerError where another rank is the cause, DeviceError where CUDA is, else CommError: naming the
// call and what NCCL said of it. ncclInProgress is no failure.
void check_result(std::string_view call, ncclResult_t result, ncclComm_t comm = nullptr);

}  // namespace fsdptrain::comm::nccl
