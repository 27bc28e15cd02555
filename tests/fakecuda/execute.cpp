#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "tests/fakecuda/call.h"

// How operations run, one at a time.
namespace fsdptrain::fakecuda {

void Rendezvous::cancel() {
  if (!done_) {
    done_ = true;
    cancelled_ = true;
  }
}

bool Machine::can_step(const Stream& stream) const {
  if (stream.queue.empty() || hung) {
    return false;
  }
  const Op& op = stream.queue.front();
  if (op.kind == Op::Kind::Wait) {
    return op.is_dropped || op.recording->done;
  }
  return !op.arrived || std::ranges::all_of(op.spec.parts, [](const Part& part) {
    return part.rendezvous->done();
  });
}

void Machine::step(Stream& stream) {
  ++progress;
  Op& op = stream.queue.front();
  if (op.kind == Op::Kind::Work) {
    step_work(stream, op);
    return;
  }
  stream.clock.join(op.host_clock);
  loudly_acquire(&accessors[op.number]);
  if (op.kind == Op::Kind::Record) {
    loudly_release(op.recording.get());
    op.recording->clock = stream.clock;
    op.recording->time = now;
    op.recording->done = true;
  } else if (!op.is_dropped) {
    stream.clock.join(op.recording->clock);
    loudly_acquire(op.recording.get());
  }
  trace.push_back(fmt::format("{} on {}: {}", op.number, stream.name, op.spec.name));
  stream.queue.pop_front();
}

void Machine::begin_op(Stream& stream, Op& op) {
  stream.clock.join(op.host_clock);
  Accessor& accessor = accessors[op.number];
  loudly_acquire(&accessor);
  accessor.tick = stream.clock.tick(stream.component);
  accessor.clock = stream.clock;
}

void Machine::step_work(Stream& stream, Op& op) {
  if (!op.arrived && !op.spec.parts.empty()) {
    arrive(stream, op);
    return;
  }
  if (op.spec.parts.empty()) {
    begin_op(stream, op);
  }
  finish(stream, op);
}

void Machine::arrive(Stream& stream, Op& op) {
  begin_op(stream, op);
  op.arrived = true;
  trace.push_back(fmt::format("{} on {}: {} arrives", op.number, stream.name, op.spec.name));
  for (const Part& part : op.spec.parts) {
    Rendezvous& rendezvous = *part.rendezvous;
    if (rendezvous.done_) {
      continue;
    }
    loudly_touch(part.reads, false);
    loudly_touch(part.writes, true);
    loudly_release(&rendezvous);
    rendezvous.arrived_.at(part.participant) = true;
    rendezvous.parts_.at(part.participant) = &part;
    rendezvous.ops_.at(part.participant) = op.number;
    if (std::ranges::count(rendezvous.arrived_, false) == 0) {
      run_rendezvous(rendezvous);
    }
  }
}

void Machine::run_rendezvous(Rendezvous& rendezvous) {
  bool valid = true;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < rendezvous.num_participants(); ++i) {
    const Part& part = *rendezvous.parts_[i];
    valid = check_ranges(part.reads, part.writes, rendezvous.ops_[i]) && valid;
    ranges.insert(ranges.end(), part.reads.begin(), part.reads.end());
    ranges.insert(ranges.end(), part.writes.begin(), part.writes.end());
    rendezvous.clock_.join(accessors[rendezvous.ops_[i]].clock);
  }
  trace.push_back(rendezvous.name() + (valid ? " runs" : " does not run"));
  export_rendezvous(rendezvous);
  if (valid) {
    memory.expose(ranges);
    loudly_acquire(&rendezvous);
    run(rendezvous.options_.run, rendezvous.ops_.back());
    loudly_release(&rendezvous);
  }
  rendezvous.done_ = true;
  now += rendezvous.options_.duration;
}

void Machine::finish(Stream& stream, Op& op) {
  bool valid = true;
  for (const Part& part : op.spec.parts) {
    stream.clock.join(part.rendezvous->clock_);
    loudly_acquire(part.rendezvous.get());
    valid = valid && !part.rendezvous->cancelled_;
  }
  accessors[op.number].clock = stream.clock;
  if (breaks(op.spec)) {
    trace.push_back(fmt::format("{} on {}: {} breaks device {}", op.number, stream.name,
                                op.spec.name, stream.device));
    break_device(stream.device);
    return;
  }
  valid = valid && check_ranges(op.spec.reads, op.spec.writes, op.number);
  if (op.spec.mark) {
    mark(*op.spec.mark, op.number);
  }
  trace.push_back(fmt::format("{} on {}: {}{}", op.number, stream.name, op.spec.name,
                              valid ? "" : " does not run"));
  export_op(stream, op);
  if (valid) {
    if (op.spec.run && !op.is_host_function) {
      std::vector<Range> ranges = op.spec.reads;
      ranges.insert(ranges.end(), op.spec.writes.begin(), op.spec.writes.end());
      memory.expose(ranges);
    }
    loudly_touch(op.spec.reads, false);
    loudly_touch(op.spec.writes, true);
    run(op.spec.run, op.number);
  }
  // So that no two operations are at the same time.
  now += std::max(op.spec.duration, std::chrono::nanoseconds(1000));
  stream.queue.pop_front();
}

void Machine::run(const std::function<void()>& body, std::uint32_t number) {
  if (!body) {
    memory.hide();
    return;
  }
  ThreadState& thread = this_thread(*this);
  try {
    if (has_workers()) {
      run_unlocked(body);
    } else {
      thread.is_in_op = true;
      running_op = number;
      body();
    }
  } catch (const std::exception& error) {
    report(ReportKind::InvalidUse,
           fmt::format("'{}' threw: {}", accessors[number].name, error.what()),
           {{"called", accessors[number].site}});
  }
  thread.is_in_op = false;
  running_op = 0;
  memory.hide();
}

bool Machine::breaks(const OpSpec& spec) {
  ++num_ops_run;
  return num_ops_run == options.faults.broken_op ||
         (!spec.name.empty() && spec.name == options.faults.broken_op_name);
}

void Machine::break_device(int device) {
  devices.at(static_cast<std::size_t>(device)).error = cudaErrorIllegalAddress;
  for (Stream& stream : streams) {
    if (stream.device != device) {
      continue;
    }
    for (Op& op : stream.queue) {
      // Nobody waits for what will never come, but at a rendezvous.
      if (op.kind == Op::Kind::Record) {
        op.recording->done = true;
      }
      for (const Part& part : op.spec.parts) {
        part.rendezvous->arrived_.at(part.participant) = part.rendezvous->done_;
      }
    }
    const bool keeps_first = stream.is_busy && !stream.queue.empty();
    stream.queue.erase(stream.queue.begin() + (keeps_first ? 1 : 0), stream.queue.end());
  }
}

std::vector<std::size_t> Machine::dependencies(const Clock& clock, Stream& stream) {
  std::vector<std::size_t> result;
  virtual_index.resize(num_components);
  for (std::size_t component = 0; component < clock.size(); ++component) {
    const std::map<std::uint32_t, std::size_t>& ops = virtual_index[component];
    const auto next = ops.upper_bound(clock.at(component));
    if (component != stream.component && next != ops.begin() &&
        std::prev(next)->first > stream.exported.at(component)) {
      result.push_back(std::prev(next)->second);
    }
  }
  stream.exported.join(clock);
  return result;
}

void Machine::export_op(Stream& stream, const Op& op) {
  if (!op.spec.parts.empty() && !op.spec.run) {
    return;
  }
  testing::VirtualOp exported{.name = op.spec.name,
                              .places = {{.device = stream.device,
                                          .stream = static_cast<int>(stream.component),
                                          .resource = op.spec.resource}},
                              .duration = op.spec.duration,
                              .dependencies = dependencies(accessors[op.number].clock, stream)};
  virtual_index[stream.component][accessors[op.number].tick] = virtual_ops.size();
  virtual_ops.push_back(std::move(exported));
}

void Machine::export_rendezvous(const Rendezvous& rendezvous) {
  testing::VirtualOp exported{.name = rendezvous.name(), .duration = rendezvous.options_.duration};
  for (const std::uint32_t number : rendezvous.ops_) {
    const Accessor& accessor = accessors[number];
    Stream& stream = *std::ranges::find(streams, accessor.component, &Stream::component);
    exported.places.push_back({.device = stream.device,
                               .stream = static_cast<int>(stream.component),
                               .resource = testing::Resource::Link,
                               .lane = rendezvous.options_.lane});
    for (const std::size_t op : dependencies(accessor.clock, stream)) {
      exported.dependencies.push_back(op);
    }
    virtual_index[stream.component][accessor.tick] = virtual_ops.size();
  }
  virtual_ops.push_back(std::move(exported));
}

}  // namespace fsdptrain::fakecuda
