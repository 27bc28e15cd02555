#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "tests/fakecuda/call.h"

// Copies and fills.
namespace fsdptrain::fakecuda {
namespace {

enum class Side { Device, Pinned, Pageable };

struct Copy {
  void* to;
  const void* from;
  std::size_t nbytes;
  cudaMemcpyKind kind;
};

Side side_of(Machine& machine, const void* pointer) {
  const auto address = reinterpret_cast<Address>(pointer);
  const Allocation* found = machine.memory.find(address);
  if (found == nullptr) {
    // An address that only we give out is reported when the copy runs.
    return machine.memory.is_ours(address) ? Side::Device : Side::Pageable;
  }
  return found->kind == MemoryKind::Device ? Side::Device : Side::Pinned;
}

const char* name_of(bool from_device, bool to_device) {
  if (from_device) {
    return to_device ? "device to device" : "device to host";
  }
  return to_device ? "host to device" : "host to host";
}

bool fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !from_device && !to_device;
    case cudaMemcpyHostToDevice:
      return !from_device && to_device;
    case cudaMemcpyDeviceToHost:
      return from_device && !to_device;
    case cudaMemcpyDeviceToDevice:
      return from_device && to_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

OpSpec copy_op(const Machine& machine, const Copy& copy, std::string name, Side from, Side to) {
  OpSpec spec{.name = std::move(name), .resource = testing::Resource::Copy};
  if (machine.options.copy_duration) {
    spec.duration = machine.options.copy_duration(copy.nbytes);
  }
  if (to != Side::Pageable) {
    spec.writes.push_back({copy.to, copy.nbytes});
  }
  if (from != Side::Pageable) {
    spec.reads.push_back({copy.from, copy.nbytes});
    spec.run = [copy] { std::memmove(copy.to, copy.from, copy.nbytes); };
    return spec;
  }
  // Pageable memory is read during the call.
  const auto* bytes = static_cast<const std::byte*>(copy.from);
  spec.run = [copy, staged = std::vector<std::byte>(bytes, bytes + copy.nbytes)] {
    std::memcpy(copy.to, staged.data(), copy.nbytes);
  };
  return spec;
}

// Null: the device's default stream, and wait where cudaMemcpy does.
cudaError_t run_copy(Machine& machine, Call& call, const Copy& copy, Stream* stream) {
  if (copy.nbytes == 0) {
    return cudaSuccess;
  }
  const Side from = side_of(machine, copy.from);
  const Side to = side_of(machine, copy.to);
  const bool from_device = from == Side::Device;
  const bool to_device = to == Side::Device;
  std::string name = fmt::format("{} {}", call.name, name_of(from_device, to_device));
  if (!fits(copy.kind, from_device, to_device)) {
    machine.report(ReportKind::InvalidUse, name + ", but the call says another direction", call);
    return cudaErrorInvalidMemcpyDirection;
  }
  const bool is_blocking = stream == nullptr;
  if (is_blocking) {
    stream = machine.default_stream(this_thread(machine).device);
  }
  machine.enqueue(
      *stream, {.kind = Op::Kind::Work, .spec = copy_op(machine, copy, std::move(name), from, to)},
      call);
  const bool waits = is_blocking && !(to_device && from != Side::Pinned);
  return waits || to == Side::Pageable ? machine.synchronize(call, *stream) : cudaSuccess;
}

void enqueue_fill(Machine& machine, Call& call, Stream& stream, const Range& range, int value) {
  // What CUDA declares without const was given to us so.
  void* to = const_cast<void*>(range.data);  // NOLINT(cppcoreguidelines-pro-type-const-cast): same
  machine.enqueue(stream,
                  {.kind = Op::Kind::Work,
                   .spec = {.name = call.name,
                            .writes = {range},
                            .run = [=] { std::memset(to, value, range.nbytes); }}},
                  call);
}

cudaError_t on_copy_stream(Machine& machine, Call& call, cudaStream_t handle,
                           const std::function<cudaError_t(Stream&)>& body) {
  Stream* stream = machine.find_stream(handle, call);
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  const cudaError_t broken = machine.devices[static_cast<std::size_t>(stream->device)].error;
  return broken != cudaSuccess ? broken : body(*stream);
}

}  // namespace
}  // namespace fsdptrain::fakecuda

using fsdptrain::fakecuda::Call;
using fsdptrain::fakecuda::cuda_call;
using fsdptrain::fakecuda::Machine;
using fsdptrain::fakecuda::Stream;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return cuda_call("cudaMemcpyAsync", [&](Machine& machine, Call& call) {
    return fsdptrain::fakecuda::on_copy_stream(machine, call, handle, [&](Stream& stream) {
      return fsdptrain::fakecuda::run_copy(
          machine, call, {.to = to, .from = from, .nbytes = nbytes, .kind = kind}, &stream);
    });
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind) {
  return cuda_call("cudaMemcpy", [&](Machine& machine, Call& call) {
    return fsdptrain::fakecuda::run_copy(
        machine, call, {.to = to, .from = from, .nbytes = nbytes, .kind = kind}, nullptr);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t nbytes, cudaStream_t handle) {
  return cuda_call("cudaMemsetAsync", [&](Machine& machine, Call& call) {
    return fsdptrain::fakecuda::on_copy_stream(machine, call, handle, [&](Stream& stream) {
      fsdptrain::fakecuda::enqueue_fill(machine, call, stream, {to, nbytes}, value);
      return cudaSuccess;
    });
  });
}

// Asynchronous, as in CUDA: only the default stream is ordered after it.
cudaError_t cudaMemset(void* to, int value, std::size_t nbytes) {
  return cuda_call("cudaMemset", [&](Machine& machine, Call& call) {
    Stream& stream = *machine.default_stream(fsdptrain::fakecuda::this_thread(machine).device);
    fsdptrain::fakecuda::enqueue_fill(machine, call, stream, {to, nbytes}, value);
    return cudaSuccess;
  });
}

}  // extern "C"
