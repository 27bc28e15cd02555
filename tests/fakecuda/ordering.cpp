#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "tests/fakecuda/machine.h"

// The calls by which a program orders streams and hosts, and the one that a test leaves out.
namespace fsdptrain::fakecuda {

bool Machine::add_ordering_call(int device, std::string text) {
  ordering_calls.push_back({device, std::move(text)});
  if (!options.faults.dropped_call || options.faults.dropped_call->device != device) {
    return true;
  }
  const auto number = std::ranges::count(ordering_calls, device, &OrderingCall::device);
  return static_cast<std::uint64_t>(number) != options.faults.dropped_call->number;
}

bool Machine::orders_wait(const Stream& stream, const Recording& recording) {
  open_waits.emplace_back(&stream, ordering_calls.size());
  return add_ordering_call(stream.device, fmt::format("{} waits for {}, after '{}'", stream.label,
                                                      recording.stream->label, recording.after));
}

bool Machine::orders_host(const Stream& stream, const std::string& after) {
  if (add_ordering_call(stream.device,
                        fmt::format("the host waits for {}, after '{}'", stream.label, after))) {
    return true;
  }
  // What the host reads is not seen here: it finds that it was too early.
  for (const Op& op : stream.queue) {
    for (const Range& range : op.spec.writes) {
      const Allocation* const found = memory.find(reinterpret_cast<Address>(range.data));
      if (found != nullptr && found->kind != MemoryKind::Device) {
        std::memset(const_cast<void*>(range.data), 0x7f, range.nbytes);
      }
    }
  }
  return false;
}

bool Machine::orders_record(const Stream& stream) {
  return add_ordering_call(
      stream.device, fmt::format("an event of {}, after '{}'", stream.label, stream.last_work));
}

void Machine::note_launch(Stream& stream, const Op& op) {
  // The allocator's notes are no work.
  if (op.kind != Op::Kind::Work || op.spec.mark) {
    return;
  }
  stream.last_work = op.spec.name;
  std::erase_if(open_waits, [&](const auto& wait) {
    if (wait.first == &stream) {
      ordering_calls[wait.second].text += fmt::format(", before '{}'", op.spec.name);
    }
    return wait.first == &stream;
  });
}

}  // namespace fsdptrain::fakecuda
