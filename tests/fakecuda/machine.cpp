#include "tests/fakecuda/machine.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace fsdptrain::fakecuda {

std::shared_ptr<Machine>& machine() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): CUDA has one per process.
  static std::shared_ptr<Machine> current;
  return current;
}

namespace {

std::uint64_t next_session_number() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): threads outlive sessions.
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

Machine::Machine(const Options& machine_options)
    : options(machine_options),
      session_number(next_session_number()),
      memory(options.num_devices, options.device_memory,
             options.protects_memory && options.mode == Mode::Ordered),
      devices(static_cast<std::size_t>(options.num_devices)),
      // Number 0 is nobody.
      accessors(1),
      random_(options.seed) {
  outside.name = "the host";
  outside.component = num_components++;
  outside.clock.tick(outside.component);
}

Stream* Machine::add_stream(int device, std::string name) {
  Stream& stream = streams.emplace_back();
  stream.device = device;
  stream.name = std::move(name);
  stream.label = "a stream";
  stream.component = num_components++;
  add_worker(stream);
  return &stream;
}

Stream* Machine::create_stream(int device, const Call& call) {
  Stream* stream = add_stream(device, fmt::format("stream {}", num_created_streams));
  stream->number = num_created_streams++;
  stream->site = call.site;
  stream->delayed = std::ranges::count(options.faults.delayed_streams, stream->number) > 0;
  return stream;
}

Stream* Machine::default_stream(int device) {
  Device& owner = devices.at(static_cast<std::size_t>(device));
  if (owner.default_stream == nullptr) {
    owner.default_stream = add_stream(device, fmt::format("the default stream of {}", device));
  }
  return owner.default_stream;
}

Stream* Machine::find_stream(cudaStream_t handle, const Call& call) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    report(ReportKind::LegacyStream,
           fmt::format("{} on a default stream: it waits for no stream of the project", call.name),
           call);
    return nullptr;
  }
  const auto found = std::ranges::find_if(
      streams, [&](Stream& stream) { return reinterpret_cast<cudaStream_t>(&stream) == handle; });
  if (found == streams.end()) {
    report(ReportKind::StreamMisuse, fmt::format("{}: this is no stream", call.name), call);
    return nullptr;
  }
  if (found->destroyed) {
    report(ReportKind::StreamMisuse, fmt::format("{}: {} was destroyed", call.name, found->name),
           call);
    return nullptr;
  }
  return &*found;
}

Event* Machine::find_event(cudaEvent_t handle, const Call& call) {
  const auto found = std::ranges::find_if(
      events, [&](Event& event) { return reinterpret_cast<cudaEvent_t>(&event) == handle; });
  if (found == events.end()) {
    report(ReportKind::EventMisuse, fmt::format("{}: this is no event", call.name), call);
    return nullptr;
  }
  if (found->destroyed) {
    report(ReportKind::EventMisuse,
           fmt::format("{}: event {} was destroyed", call.name, found->number), call);
    return nullptr;
  }
  return &*found;
}

Op& Machine::enqueue(Stream& stream, Op op, const Call& call) {
  op.number = static_cast<std::uint32_t>(accessors.size());
  op.host_clock = call.host.clock;
  // What the host does from now on is not ordered before the operation.
  call.host.clock.tick(call.host.component);
  accessors.push_back(
      {.name = op.spec.name,
       .place = fmt::format("op {}, device {}, {}", op.number, stream.device, stream.name),
       .component = stream.component,
       .site = call.site});
  loudly_release(&accessors.back());
  note_launch(stream, op);
  progressed.notify_all();
  return stream.queue.emplace_back(std::move(op));
}

}  // namespace fsdptrain::fakecuda
