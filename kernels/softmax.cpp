#include "kernels/softmax.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {

void softmax(const Launch& launch, const View& y, const View& x, const SoftmaxShape& shape,
             SoftmaxForm form) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa,
                          [&]<Isa isa>() { cpu::softmax<isa>(launch, y, x, shape, form); });
    case DeviceType::Cuda:
      cuda::missing("softmax");
    case DeviceType::Meta:
      return;
  }
}

void softmax_backward(const Launch& launch, const View& dx, const View& dy, const View& y,
                      const SoftmaxShape& shape, SoftmaxForm form) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::softmax_backward<isa>(launch, dx, dy, y, shape, form);
      });
    case DeviceType::Cuda:
      cuda::missing("softmax_backward");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
