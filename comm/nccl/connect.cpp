#include "comm/nccl/connect.h"

#include <cstdlib>
#include <fmt/format.h>
#include <utility>

#include <nccl.h>

#include "comm/nccl/carrier.h"
#include "comm/nccl/check.h"
#include "runtime/base/log.h"

namespace fsdptrain::comm::nccl {
namespace {

constexpr const char* kLaunchOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";

std::string dotted(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void check_environment(const Options& options) {
  const char* const order = std::getenv(kLaunchOrder);
  if (options.streams == Streams::Separate && (order == nullptr || *order != '1')) {
    log_warning(
        "{} is not 1: NCCL may start kernels of two communicators in another order on "
        "another rank, and hang; set it, or comm.streams = \"shared\"",
        kLaunchOrder);
  }
}

}  // namespace

std::unique_ptr<Carrier> make_carrier(Options options) {
  check_environment(options);
  return std::make_unique<NcclCarrier>(std::move(options));
}

void prepare_environment() {
  ::setenv(kLaunchOrder, "1", 0);
}

Versions versions() {
  int running = 0;
  check_result("ncclGetVersion", ncclGetVersion(&running));
  return {dotted(NCCL_VERSION_CODE), dotted(running)};
}

}  // namespace fsdptrain::comm::nccl
