#include <algorithm>
#include <fmt/format.h>

#include "tests/fakecuda/call.h"

// Device, pinned and registered memory.
namespace fsdptrain::fakecuda {
namespace {

void* pointer_to(const Allocation& allocation) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an allocation of ours.
  return reinterpret_cast<void*>(allocation.begin);
}

cudaError_t allocate_host(const char* name, void** pointer, std::size_t nbytes) {
  return cuda_call(name, [&](Machine& machine, Call& call) {
    const std::uint64_t number = ++machine.num_host_mallocs;
    *pointer = nullptr;
    if (std::ranges::count(machine.options.faults.failing_host_mallocs, number) > 0) {
      return cudaErrorMemoryAllocation;
    }
    if (nbytes > 0) {
      *pointer = pointer_to(*machine.memory.allocate_pinned(nbytes, call.site));
    }
    return cudaSuccess;
  });
}

// The live allocation of this kind that begins at the pointer; null and a report otherwise.
Allocation* find_to_free(Machine& machine, Call& call, const void* pointer, MemoryKind kind) {
  const auto address = reinterpret_cast<Address>(pointer);
  Allocation* found = machine.memory.find(address);
  if (found == nullptr || found->begin != address || found->kind != kind) {
    machine.report(ReportKind::InvalidUse,
                   fmt::format("{} of what is not the begin of such memory", call.name), call);
    return nullptr;
  }
  if (found->freed) {
    machine.report(ReportKind::DoubleFree,
                   fmt::format("{} of {}, which was freed", call.name, to_string(*found)),
                   {{"freed", call.site}, {"freed before", *found->freed}});
    return nullptr;
  }
  return found;
}

cudaError_t free_host(const char* name, void* pointer, MemoryKind kind) {
  return cuda_call(name, [&](Machine& machine, Call& call) {
    Allocation* allocation = find_to_free(machine, call, pointer, kind);
    if (allocation == nullptr) {
      return kind == MemoryKind::Pinned ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered;
    }
    machine.check_free(*allocation, machine.known_to(call.host), call);
    machine.memory.free(*allocation, call.site);
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace fsdptrain::fakecuda

using fsdptrain::fakecuda::Address;
using fsdptrain::fakecuda::Allocation;
using fsdptrain::fakecuda::Call;
using fsdptrain::fakecuda::Clock;
using fsdptrain::fakecuda::cuda_call;
using fsdptrain::fakecuda::Machine;
using fsdptrain::fakecuda::MemoryKind;
using fsdptrain::fakecuda::this_thread;

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t nbytes) {
  return cuda_call("cudaMalloc", [&](Machine& machine, Call& call) {
    const std::uint64_t number = ++machine.num_mallocs;
    *pointer = nullptr;
    if (nbytes == 0) {
      return cudaSuccess;
    }
    const bool fails = std::ranges::count(machine.options.faults.failing_mallocs, number) > 0;
    Allocation* allocation =
        fails ? nullptr
              : machine.memory.allocate_device(this_thread(machine).device, nbytes, call.site);
    if (allocation == nullptr) {
      return cudaErrorMemoryAllocation;
    }
    *pointer = fsdptrain::fakecuda::pointer_to(*allocation);
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* pointer) {
  return cuda_call("cudaFree", [&](Machine& machine, Call& call) {
    if (pointer == nullptr) {
      return cudaSuccess;
    }
    Allocation* allocation =
        fsdptrain::fakecuda::find_to_free(machine, call, pointer, MemoryKind::Device);
    if (allocation == nullptr) {
      return cudaErrorInvalidValue;
    }
    const Clock known = machine.known_to(call.host);
    // It may wait for the whole device.
    const cudaError_t result = machine.synchronize_device(call, allocation->device);
    machine.check_free(*allocation, known, call);
    machine.memory.free(*allocation, call.site);
    return result;
  });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t nbytes) {
  return fsdptrain::fakecuda::allocate_host("cudaMallocHost", pointer, nbytes);
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t nbytes, unsigned) {
  return fsdptrain::fakecuda::allocate_host("cudaHostAlloc", pointer, nbytes);
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) {
    return cudaSuccess;
  }
  return fsdptrain::fakecuda::free_host("cudaFreeHost", pointer, MemoryKind::Pinned);
}

cudaError_t cudaHostRegister(void* pointer, std::size_t nbytes, unsigned) {
  return cuda_call("cudaHostRegister", [&](Machine& machine, Call& call) {
    const auto begin = reinterpret_cast<Address>(pointer);
    const Allocation* known = machine.memory.find(begin);
    if (nbytes == 0 || machine.memory.is_ours(begin)) {
      return cudaErrorInvalidValue;
    }
    if (known != nullptr) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
    machine.memory.add_registered(begin, nbytes, call.site);
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return fsdptrain::fakecuda::free_host("cudaHostUnregister", pointer, MemoryKind::Registered);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return cuda_call("cudaMemGetInfo", [&](Machine& machine, Call&) {
    *free_bytes = machine.memory.free_bytes(this_thread(machine).device);
    *total_bytes = machine.memory.total_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return cuda_call("cudaPointerGetAttributes", [&](Machine& machine, Call&) {
    const auto address = reinterpret_cast<Address>(pointer);
    const Allocation* found = machine.memory.find(address);
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    if (found != nullptr && !found->freed && address >= found->begin && address < found->end()) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the pointer itself, without const.
      void* same = reinterpret_cast<void*>(address);
      const bool is_device = found->kind == MemoryKind::Device;
      attributes->type = is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
      attributes->device = is_device ? found->device : 0;
      attributes->devicePointer = same;
      attributes->hostPointer = is_device ? nullptr : same;
    }
    return cudaSuccess;
  });
}

}  // extern "C"
