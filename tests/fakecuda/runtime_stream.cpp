#include <fmt/format.h>
#include <utility>

#include "tests/fakecuda/call.h"

// Streams and events.
namespace fsdptrain::fakecuda {
namespace {

cudaError_t create_stream(const char* name, cudaStream_t* handle, unsigned flags) {
  return cuda_call(name, [&](Machine& machine, Call& call) {
    if (flags != cudaStreamNonBlocking) {
      machine.report(ReportKind::InvalidUse,
                     fmt::format("{} without cudaStreamNonBlocking: the stream would wait for the "
                                 "default stream",
                                 call.name),
                     call);
    }
    *handle =
        reinterpret_cast<cudaStream_t>(machine.create_stream(this_thread(machine).device, call));
    return cudaSuccess;
  });
}

// Runs `body` with the stream behind the handle.
cudaError_t on_stream(const char* name, cudaStream_t handle,
                      const std::function<cudaError_t(Machine&, Call&, Stream&)>& body) {
  return cuda_call(name, [&](Machine& machine, Call& call) {
    Stream* stream = machine.find_stream(handle, call);
    if (stream == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    const cudaError_t broken = machine.devices[static_cast<std::size_t>(stream->device)].error;
    return broken != cudaSuccess ? broken : body(machine, call, *stream);
  });
}

cudaError_t on_event(const char* name, cudaEvent_t handle,
                     const std::function<cudaError_t(Machine&, Call&, Event&)>& body) {
  return cuda_call(name, [&](Machine& machine, Call& call) {
    Event* event = machine.find_event(handle, call);
    return event != nullptr ? body(machine, call, *event) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace

cudaError_t enqueue(cudaStream_t handle, OpSpec spec) {
  const std::string name = "launch of " + spec.name;
  return on_stream(name.c_str(), handle, [&](Machine& machine, Call& call, Stream& stream) {
    const int current = this_thread(machine).device;
    if (stream.device != current) {
      machine.report(ReportKind::StreamMisuse,
                     fmt::format("{}: {} is of device {}, the current device is {}", call.name,
                                 stream.name, stream.device, current),
                     call);
      return cudaErrorInvalidResourceHandle;
    }
    machine.enqueue(stream, {.kind = Op::Kind::Work, .spec = std::move(spec)}, call);
    return cudaSuccess;
  });
}

}  // namespace fsdptrain::fakecuda

using fsdptrain::fakecuda::Call;
using fsdptrain::fakecuda::cuda_call;
using fsdptrain::fakecuda::Event;
using fsdptrain::fakecuda::Machine;
using fsdptrain::fakecuda::on_event;
using fsdptrain::fakecuda::on_stream;
using fsdptrain::fakecuda::Op;
using fsdptrain::fakecuda::Recording;
using fsdptrain::fakecuda::ReportKind;
using fsdptrain::fakecuda::Stream;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return fsdptrain::fakecuda::create_stream("cudaStreamCreateWithFlags", stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return fsdptrain::fakecuda::create_stream("cudaStreamCreateWithPriority", stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return on_stream("cudaStreamDestroy", handle, [](Machine&, Call&, Stream& stream) {
    stream.destroyed = true;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream("cudaStreamQuery", handle, [](Machine& machine, Call& call, Stream& stream) {
    if (!stream.queue.empty()) {
      return cudaErrorNotReady;
    }
    machine.show(call.host, stream.clock, &stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream(
      "cudaStreamSynchronize", handle, [](Machine& machine, Call& call, Stream& stream) {
        return machine.orders_host(stream, stream.last_work) ? machine.synchronize(call, stream)
                                                             : cudaSuccess;
      });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  return on_stream(
      "cudaStreamWaitEvent", handle, [&](Machine& machine, Call& call, Stream& stream) {
        const Event* event = machine.find_event(event_handle, call);
        if (event == nullptr) {
          return cudaErrorInvalidResourceHandle;
        }
        // An event that was never recorded is not waited for.
        if (event->last) {
          machine.enqueue(stream,
                          {.kind = Op::Kind::Wait,
                           .spec = {.name = fmt::format("wait for event {}", event->number)},
                           .recording = event->last,
                           .is_dropped = !machine.orders_wait(stream, *event->last)},
                          call);
        }
        return cudaSuccess;
      });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return on_stream("cudaLaunchHostFunc", handle, [&](Machine& machine, Call& call, Stream& stream) {
    machine.enqueue(stream,
                    {.kind = Op::Kind::Work,
                     .spec = {.name = "host function",
                              .run = [function, argument] { function(argument); },
                              .resource = fsdptrain::testing::Resource::None},
                     .is_host_function = true},
                    call);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return cuda_call("cudaEventCreateWithFlags", [&](Machine& machine, Call& call) {
    Event& event = machine.events.emplace_back();
    event.number = static_cast<int>(machine.events.size()) - 1;
    event.device = fsdptrain::fakecuda::this_thread(machine).device;
    event.flags = flags;
    event.site = call.site;
    *handle = reinterpret_cast<cudaEvent_t>(&event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return on_event("cudaEventDestroy", handle, [](Machine&, Call&, Event& event) {
    event.destroyed = true;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle) {
  return on_stream("cudaEventRecord", handle, [&](Machine& machine, Call& call, Stream& stream) {
    Event* event = machine.find_event(event_handle, call);
    if (event == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (event->device != stream.device) {
      machine.report(ReportKind::EventMisuse,
                     fmt::format("{}: event {} is of device {}, {} of device {}", call.name,
                                 event->number, event->device, stream.name, stream.device),
                     call);
      return cudaErrorInvalidResourceHandle;
    }
    const auto recording = std::make_shared<Recording>();
    recording->stream = &stream;
    recording->after = stream.last_work;
    if (machine.orders_record(stream)) {
      event->last = recording;
    }
    machine.enqueue(stream,
                    {.kind = Op::Kind::Record,
                     .spec = {.name = fmt::format("record of event {}", event->number)},
                     .recording = recording},
                    call);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return on_event("cudaEventQuery", handle, [](Machine& machine, Call& call, Event& event) {
    if (event.last) {
      if (!event.last->done) {
        return cudaErrorNotReady;
      }
      machine.show(call.host, event.last->clock, event.last.get());
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return on_event("cudaEventSynchronize", handle, [](Machine& machine, Call& call, Event& event) {
    const std::shared_ptr<Recording> last = event.last;
    if (!last || !machine.orders_host(*last->stream, last->after)) {
      return cudaSuccess;
    }
    if (!machine.block(call, last->stream, [last] { return last->done; })) {
      return cudaErrorLaunchTimeout;
    }
    machine.tell(call.host, last->clock, last.get());
    return machine.devices[static_cast<std::size_t>(last->stream->device)].error;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return on_event("cudaEventElapsedTime", begin, [&](Machine& machine, Call& call, Event& first) {
    const Event* last = machine.find_event(end, call);
    if (last == nullptr || !first.last || !last->last ||
        ((first.flags | last->flags) & cudaEventDisableTiming) != 0) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!first.last->done || !last->last->done) {
      return cudaErrorNotReady;
    }
    *milliseconds =
        std::chrono::duration<float, std::milli>(last->last->time - first.last->time).count();
    return cudaSuccess;
  });
}

}  // extern "C"
