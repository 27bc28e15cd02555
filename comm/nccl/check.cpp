#include "comm/nccl/check.h"

#include <fmt/format.h>

#include "comm/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm::nccl {
namespace {

std::string_view name_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "ncclSuccess";
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    case ncclInProgress:
      return "ncclInProgress";
    case ncclNumResults:
      break;
  }
  return "an unknown result";
}

}  // namespace

std::string describe(ncclResult_t result, ncclComm_t comm) {
  const char* last = ncclGetLastError(comm);
  const bool said_more = last != nullptr && *last != '\0';
  return fmt::format("{} ({}){}{}", name_of(result), ncclGetErrorString(result),
                     said_more ? ": " : "", said_more ? printable(last) : "");
}

void check_result(std::string_view call, ncclResult_t result, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]] {
    return;
  }
  const std::string text = describe(result, comm);
  if (result == ncclRemoteError) {
    fail<PeerError>("{}: NCCL says {}", call, text);
  }
  if (result == ncclUnhandledCudaError) {
    fail<DeviceError>("{}: NCCL says {}", call, text);
  }
  fail<CommError>("{}: NCCL says {}", call, text);
}

}  // namespace fsdptrain::comm::nccl
