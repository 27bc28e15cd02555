#pragma once

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/kernel_profile.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels {

// The one switch over devices beside that of map() (elementwise.h). `op` names the entry, in a
// profile and in errors. On the CPU it calls fn.template operator()<isa>() with the variant of the
// launch; meta launches nothing; on CUDA, for kernels that are not written for it yet, DeviceError.
template <class Fn>
void run_on(const Launch& launch, const char* op, Fn&& fn) {
  const ProfileScope scope(launch.profile, op);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      dispatch_isa(launch.isa, std::forward<Fn>(fn));
      return;
    case DeviceType::Cuda:
      fail<DeviceError>("{}: there is no CUDA kernel for it yet; run it on cpu", op);
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
