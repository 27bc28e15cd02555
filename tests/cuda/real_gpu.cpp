#include <cstdio>
#include <fmt/format.h>

#include <cuda_runtime_api.h>

#include "runtime/base/rank_context.h"
#include "tests/cuda/gpu.h"

namespace fsdptrain::testing {
namespace {

// Empty if there is a device.
std::string why_no_gpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  if (status != cudaSuccess) {
    return fmt::format("CUDA says {}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
  }
  return count > 0 ? "" : "this machine has no CUDA device";
}

void print_skipped(const std::string& reason) {
  fmt::print("SKIPPED, nothing was tested: {}\n", reason);
  std::fflush(stdout);
}

}  // namespace

bool has_gpu() {
  const std::string reason = why_no_gpu();
  if (!reason.empty()) {
    print_skipped(reason);
  }
  return reason.empty();
}

std::uint64_t num_orders() {
  return 1;
}

void on_gpu_in_order(std::uint64_t, const std::function<void()>& body) {
  RankContext context({.threads = 2, .isa = {}, .log_prefix = {}});
  const ContextGuard bound(context);
  body();
}

void without_gpu(const std::function<void()>& body) {
  if (why_no_gpu().empty()) {
    print_skipped("this machine has a CUDA device");
    return;
  }
  body();
}

bool has_nans_of_cpu() {
  return false;
}

}  // namespace fsdptrain::testing
