#include "kernels/dropout.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {

void dropout(const Launch& launch, const View& out, const View& in, const DropoutMask& mask) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::dropout<isa>(launch, out, in, mask); });
    case DeviceType::Cuda:
      cuda::missing("dropout");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
