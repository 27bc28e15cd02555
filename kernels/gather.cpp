#include "kernels/gather.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {

void gather(const Launch& launch, const View& out, const View& in, const View& indices,
            const GatherShape& shape) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa,
                          [&]<Isa isa>() { cpu::gather<isa>(launch, out, in, indices, shape); });
    case DeviceType::Cuda:
      cuda::missing("gather");
    case DeviceType::Meta:
      return;
  }
}

void scatter_add(const Launch& launch, const View& out, const View& indices, const View& in,
                 const GatherShape& shape) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(
          launch.isa, [&]<Isa isa>() { cpu::scatter_add<isa>(launch, out, indices, in, shape); });
    case DeviceType::Cuda:
      cuda::missing("scatter_add");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
