#include <fmt/format.h>

#include <cuda_runtime_api.h>

#include "runtime/base/cuda_versions.h"

namespace fsdptrain {
namespace {

// 13000 is 13.0, 12080 is 12.8. Without a driver CUDA's version of it is 0.
std::string dotted(int version) {
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

CudaVersions cuda_versions() {
  int running = 0;
  int driver = 0;
  static_cast<void>(cudaRuntimeGetVersion(&running));
  static_cast<void>(cudaDriverGetVersion(&driver));
  // What failed is said by whoever needs a device.
  static_cast<void>(cudaGetLastError());
  return {dotted(CUDART_VERSION), dotted(running), dotted(driver)};
}

}  // namespace fsdptrain
