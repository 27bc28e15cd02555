#pragma once

#include <functional>
#include <utility>

#include "kernels/cuda/stand_in.h"
#include "kernels/operands.h"
#include "runtime/base/error.h"
#include "runtime/base/kernel_profile.h"
#include "runtime/base/view.h"

// The switches over devices, beside that of map() (elementwise.h). `op` names the entry, in a
// profile and in errors, and has static storage. Meta launches nothing.
namespace fsdptrain::kernels {

// A kernel that is written for the CPU only. On the CPU it calls
// fn.template operator()<isa>(launch) with the variant of the launch; on CUDA the stand-ins of the
// program decide (cuda/stand_in.h), and may keep a copy of fn for later: it holds all it needs by
// value and takes threads and memory from the launch it is called with.
template <class Fn>
void run_on(const Launch& launch, const char* op, const Operands& operands, Fn&& fn) {
  const ProfileScope scope(launch.profile, op);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { fn.template operator()<isa>(launch); });
    case DeviceType::Cuda:
      return cuda::stand_in(launch, op, operands, [fn = std::forward<Fn>(fn)](const Launch& cpu) {
        dispatch_isa(cpu.isa, [&]<Isa isa>() { fn.template operator()<isa>(cpu); });
      });
    case DeviceType::Meta:
      return;
  }
}

// The same with workspace: fn.template operator()<isa>(launch, workspace) with what
// allocate(launch) returned, which lives as long as that call. Meta allocates it too.
template <class Allocate, class Fn>
void run_on(const Launch& launch, const char* op, const Operands& operands, Allocate&& allocate,
            Fn&& fn) {
  if (launch.device.type != DeviceType::Cuda) {
    const auto workspace = allocate(launch);
    return run_on(launch, op, operands, [&]<Isa isa>(const Launch& same) {
      fn.template operator()<isa>(same, workspace);
    });
  }
  run_on(launch, op, operands,
         [allocate = std::forward<Allocate>(allocate),
          fn = std::forward<Fn>(fn)]<Isa isa>(const Launch& cpu) {
           const auto workspace = allocate(cpu);
           fn.template operator()<isa>(cpu, workspace);
         });
}

// A kernel that is written for both: cpu.template operator()<isa>() or cuda().
template <class Cpu, class Cuda>
void run_native(const Launch& launch, const char* op, const Cpu& cpu, const Cuda& cuda) {
  const ProfileScope scope(launch.profile, op);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, cpu);
    case DeviceType::Cuda:
      return cuda();
    case DeviceType::Meta:
      return;
  }
}

// A kernel on memory of the host alone: fn.template operator()<isa>(). DeviceError on CUDA.
template <class Fn>
void run_on_host(const Launch& launch, const char* op, const Fn& fn) {
  run_native(launch, op, fn, [&] {
    fail<DeviceError>("{}: it works on memory of the host, got a launch on {}", op, launch.device);
  });
}

}  // namespace fsdptrain::kernels
