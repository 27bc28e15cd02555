#pragma once

#include "kernels/functors/tags.h"
#include "runtime/base/kernel_profile.h"
#include "runtime/base/view.h"

// out[i] = apply(tag, in[i]...) over views of one shape (strides are free, 0 repeats an element).
// The dtypes are those the tag's Out and In say; `out` may be one of the inputs, element for
// element, and must not overlap them otherwise. A tag without an instantiation line in the unit
// of its family does not link.
namespace fsdptrain::kernels {

namespace cpu {
template <Isa isa, class F, class... In>
void map(const Launch& launch, F f, const View& out, const In&... in);
}  // namespace cpu

namespace cuda {
template <class F, class... In>
void map(void* stream, F f, const View& out, const In&... in);
}  // namespace cuda

template <class F, class... In>
void map(const Launch& launch, F f, const View& out, const In&... in) {
  const ProfileScope scope(launch.profile, "elementwise");
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::map<isa>(launch, f, out, in...); });
    case DeviceType::Cuda:
      return cuda::map(launch.stream, f, out, in...);
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
