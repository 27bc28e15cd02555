#include "runtime/base/cuda_versions.h"
#include "runtime/base/device_api.h"
#include "runtime/base/error.h"

// What a program without CUDA has in the place of it.
namespace fsdptrain {

std::shared_ptr<DeviceApi> make_cuda_api(int index) {
  fail<DeviceError>("{}: this program was built without CUDA: configure with the preset cuda",
                    Device::cuda(index));
}

CudaVersions cuda_versions() {
  return {"not built", "not built", "none"};
}

}  // namespace fsdptrain
