#include "comm/nccl/connect.h"
#include "runtime/base/error.h"

// What a program without CUDA has in the place of NCCL.
namespace fsdptrain::comm::nccl {

std::unique_ptr<Carrier> make_carrier(Options options) {
  fail<DeviceError>(
      "NCCL on {}: this program was built without CUDA: configure with the preset cuda",
      options.device);
}

void prepare_environment() {
  fail<DeviceError>("NCCL: this program was built without CUDA: configure with the preset cuda");
}

Versions versions() {
  return {"not built", "not built"};
}

}  // namespace fsdptrain::comm::nccl
