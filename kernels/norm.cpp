#include "kernels/norm.h"

#include "kernels/cuda/missing.h"
#include "kernels/reduce.h"

namespace fsdptrain::kernels {

void layer_norm(const Launch& launch, const LayerNormOut& out, const LayerNormIn& in,
                const NormShape& shape, double eps) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa,
                          [&]<Isa isa>() { cpu::layer_norm<isa>(launch, out, in, shape, eps); });
    case DeviceType::Cuda:
      cuda::missing("layer_norm");
    case DeviceType::Meta:
      return;
  }
}

void layer_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                         const LayerNormSaved& saved, const NormShape& shape) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::layer_norm_backward<isa>(launch, dx, dy, weight, saved, shape);
      });
    case DeviceType::Cuda:
      cuda::missing("layer_norm_backward");
    case DeviceType::Meta:
      return;
  }
}

void layer_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                                const LayerNormSaved& saved, const NormShape& shape,
                                bool accumulate) {
  const Allocation partials =
      allocate_partials(launch, {.reduced = shape.rows, .inner = shape.width}, kSumRows);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::layer_norm_backward_weight<isa>(launch, dweight, dy, saved, shape, accumulate,
                                             partials.data());
      });
    case DeviceType::Cuda:
      cuda::missing("layer_norm_backward_weight");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
