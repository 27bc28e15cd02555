#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "tests/fakecuda/machine.h"
#include "tests/fakecuda/thread_sanitizer.h"

// How host threads take turns: of those that are ranks, one runs at a time.
namespace fsdptrain::fakecuda {
namespace {

std::string awaited_by(const Op& op) {
  if (op.kind == Op::Kind::Wait) {
    return op.recording->done ? "" : "waits for " + op.recording->stream->name;
  }
  std::vector<std::string> texts;
  for (const Part& part : op.spec.parts) {
    const Rendezvous& rendezvous = *part.rendezvous;
    if (op.arrived && !rendezvous.done()) {
      texts.push_back(fmt::format("'{}' waits for {}", rendezvous.name(),
                                  fmt::join(rendezvous.missing(), ", ")));
    }
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

std::vector<std::string> Rendezvous::missing() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < num_participants(); ++i) {
    if (!arrived_[i]) {
      names.push_back(options_.participants[i]);
    }
  }
  return names;
}

std::string Machine::hang_text() const {
  std::string text = "no host thread and no operation can run";
  const auto add_host = [&](const Host& host) {
    if (host.state == Host::State::Ended) {
      text += fmt::format("\n  {} has ended; its last call was {}", host.name, host.last_call);
      return;
    }
    text += fmt::format("\n  {} is in {}", host.name, host.last_call);
    if (host.awaited != nullptr) {
      text += ", which waits for " + host.awaited->name;
    }
  };
  if (ranks.empty()) {
    add_host(outside);
  }
  for (const Host& rank : ranks) {
    add_host(rank);
  }
  for (const Stream& stream : streams) {
    if (!stream.queue.empty()) {
      const Op& op = stream.queue.front();
      text += fmt::format("\n  {} of device {} is at op {}, '{}' ", stream.name, stream.device,
                          op.number, op.spec.name) +
              awaited_by(op);
    }
  }
  return text;
}

bool Machine::let_others_act(Call& call, const Stream* awaited) {
  Host& me = call.host;
  if (has_workers() && !hung && wait_for_progress(call.lock)) {
    return true;
  }
  if (!hung) {
    std::vector<Stream*> runnable = runnable_streams(false);
    const std::vector<Host*> hosts = me.rank < 0 ? std::vector<Host*>{} : runnable_hosts(me);
    if (runnable.empty() && hosts.empty()) {
      runnable = runnable_streams(true);
    }
    if (!has_workers() && (!runnable.empty() || !hosts.empty())) {
      if (goes_to_host(runnable.size(), hosts.size())) {
        hand_over(me, *choose_host(hosts, me), call.lock);
      } else {
        step(*choose_stream(runnable, awaited));
        progressed.notify_all();
      }
      return true;
    }
    const bool others_run = !has_workers() && std::ranges::any_of(ranks, [](const Host& rank) {
      return rank.state != Host::State::Ended;
    });
    if (me.rank < 0 && others_run) {
      progressed.wait(call.lock);
      return true;
    }
    std::vector<Place> places;
    for (const Host& rank : ranks) {
      places.push_back({rank.name, rank.last_site});
    }
    if (ranks.empty()) {
      places.push_back({me.name, me.last_site});
    }
    hang = hang_text();
    report(ReportKind::Hang, hang, std::move(places));
    hung = true;
  }
  if (std::uncaught_exceptions() > 0 || std::exchange(me.has_thrown, true)) {
    return false;
  }
  throw HangError(hang);
}

void Machine::hand_over(Host& me, Host& other, std::unique_lock<std::mutex>& lock) {
  trace.push_back(other.name + " goes on");
  current = &other;
  other.turn.notify_one();
  me.turn.wait(lock, [&] { return current == &me; });
}

bool Machine::block(Call& call, const Stream* awaited, std::function<bool()> ready) {
  if (ready()) {
    return true;
  }
  Host& me = call.host;
  me.state = Host::State::Waiting;
  me.ready = std::move(ready);
  me.ready_is_ours = true;
  me.awaited = awaited;
  const auto go_on = [&] {
    me.state = Host::State::Running;
    me.awaited = nullptr;
    ++progress;
  };
  try {
    const std::function<bool()> done = me.ready;
    bool possible = true;
    while (possible && !done()) {
      possible = let_others_act(call, awaited);
    }
    go_on();
    return possible;
  } catch (...) {
    go_on();
    throw;
  }
}

cudaError_t Machine::synchronize(Call& call, Stream& stream) {
  if (!stream.queue.empty()) {
    const std::uint32_t last = stream.queue.back().number;
    const auto is_past = [&stream, last] {
      return stream.queue.empty() || stream.queue.front().number > last;
    };
    if (!block(call, &stream, is_past)) {
      return cudaErrorLaunchTimeout;
    }
  }
  tell(call.host, stream.clock, &stream);
  return devices[static_cast<std::size_t>(stream.device)].error;
}

cudaError_t Machine::synchronize_device(Call& call, int device) {
  cudaError_t result = devices[static_cast<std::size_t>(device)].error;
  for (Stream& stream : streams) {
    if (stream.device == device && result == cudaSuccess) {
      result = synchronize(call, stream);
    }
  }
  return result;
}

void Machine::wait(Call& call, const std::function<bool()>& ready) {
  Host& me = call.host;
  const auto is_ready = [&] {
    call.lock.unlock();
    bool result = false;
    {
      const Loud loud(has_workers());
      result = ready();
    }
    call.lock.lock();
    return result;
  };
  // What this thread did since may be what others wait for.
  ++progress;
  while (!is_ready()) {
    me.state = Host::State::Waiting;
    me.ready_is_ours = false;
    me.checked_at = progress;
    try {
      if (has_workers()) {
        // Nobody tells the fake when it becomes ready.
        progressed.wait_until(call.lock,
                              std::chrono::system_clock::now() + std::chrono::milliseconds(1));
      } else if (!let_others_act(call, nullptr)) {
        throw HangError(hang);
      }
    } catch (...) {
      me.state = Host::State::Running;
      throw;
    }
    me.state = Host::State::Running;
  }
  ++progress;
  if (!options.learns_by_looking) {
    return;
  }
  // Whatever made it ready, some other rank did.
  for (Host& other : ranks) {
    me.clock.join(other.clock);
    other.clock.tick(other.component);
  }
}

void Machine::begin(Host& host, std::unique_lock<std::mutex>& lock) {
  host.clock.join(outside.clock);
  outside.clock.tick(outside.component);
  if (has_workers()) {
    host.state = Host::State::Running;
    return;
  }
  host.state = Host::State::Ready;
  ++num_begun;
  if (num_begun == static_cast<int>(ranks.size())) {
    std::vector<Host*> all;
    for (Host& rank : ranks) {
      all.push_back(&rank);
    }
    // Nobody comes before the first one.
    current = choose_host(all, Host{});
    trace.push_back(current->name + " goes on");
    current->turn.notify_one();
  }
  host.turn.wait(lock, [&] { return current == &host; });
  host.state = Host::State::Running;
}

void Machine::end(Host& host) {
  host.state = Host::State::Ended;
  outside.clock.join(host.clock);
  ++progress;
  if (has_workers()) {
    return;
  }
  current = nullptr;
  std::vector<Host*> next = runnable_hosts(host);
  if (next.empty()) {
    // They are blocked until an operation ran: one of them runs it.
    for (Host& rank : ranks) {
      if (rank.state != Host::State::Ended) {
        next.push_back(&rank);
      }
    }
  }
  if (!next.empty()) {
    current = choose_host(next, host);
    trace.push_back(current->name + " goes on");
    current->turn.notify_one();
  }
  progressed.notify_all();
}

void Machine::drain() {
  while (true) {
    std::vector<Stream*> runnable = runnable_streams(false);
    if (runnable.empty()) {
      runnable = runnable_streams(true);
    }
    if (runnable.empty()) {
      return;
    }
    step(*choose_stream(runnable, nullptr));
  }
}

}  // namespace fsdptrain::fakecuda
