#include "kernels/cross_entropy.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {

void cross_entropy_forward(const Launch& launch, const CrossEntropyForward& args) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa,
                          [&]<Isa isa>() { cpu::cross_entropy_forward<isa>(launch, args); });
    case DeviceType::Cuda:
      cuda::missing("cross_entropy");
    case DeviceType::Meta:
      return;
  }
}

void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa,
                          [&]<Isa isa>() { cpu::cross_entropy_backward<isa>(launch, args); });
    case DeviceType::Cuda:
      cuda::missing("cross_entropy");
    case DeviceType::Meta:
      return;
  }
}

void cross_entropy_forward_backward(const Launch& launch, const CrossEntropyForwardBackward& args) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(
          launch.isa, [&]<Isa isa>() { cpu::cross_entropy_forward_backward<isa>(launch, args); });
    case DeviceType::Cuda:
      cuda::missing("cross_entropy");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
