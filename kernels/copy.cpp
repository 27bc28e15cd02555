#include "kernels/copy.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {

void copy(const Launch& launch, const View& out, const View& in) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::copy<isa>(launch, out, in); });
    case DeviceType::Cuda:
      cuda::missing("copy");
    case DeviceType::Meta:
      return;
  }
}

void accumulate(const Launch& launch, const View& out, const View& in) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::accumulate<isa>(launch, out, in); });
    case DeviceType::Cuda:
      cuda::missing("accumulate");
    case DeviceType::Meta:
      return;
  }
}

void fill(const Launch& launch, const View& out, double value) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::fill<isa>(launch, out, value); });
    case DeviceType::Cuda:
      cuda::missing("fill");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
