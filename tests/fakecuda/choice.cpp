#include <algorithm>
#include <deque>
#include <iterator>

#include "tests/fakecuda/machine.h"

// Which of all that could happen next does happen: the meaning of the seed.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::uint64_t kIssueOrder = 0;
constexpr std::uint64_t kNewestFirst = 1;
constexpr std::uint64_t kLazy = 2;

template <class T>
bool contains(const std::vector<T*>& all, const T* one) {
  return std::ranges::find(all, one) != all.end();
}

}  // namespace

std::vector<Stream*> Machine::runnable_streams(bool delayed) {
  std::vector<Stream*> result;
  for (Stream& stream : streams) {
    if (stream.delayed == delayed && can_step(stream)) {
      result.push_back(&stream);
    }
  }
  return result;
}

// The streams that must move so that `awaited` does.
std::vector<Stream*> Machine::needed_streams(const Stream* awaited) {
  std::vector<Stream*> result;
  const auto add = [&](const Stream* wanted) {
    for (Stream& stream : streams) {
      if (&stream == wanted && !contains(result, wanted)) {
        result.push_back(&stream);
      }
    }
  };
  const auto add_participants = [&](const Rendezvous& rendezvous) {
    for (const Stream& stream : streams) {
      for (const Op& op : stream.queue) {
        for (const Part& part : op.spec.parts) {
          if (part.rendezvous.get() == &rendezvous && !op.arrived) {
            add(&stream);
          }
        }
      }
    }
  };
  add(awaited);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i]->queue.empty()) {
      continue;
    }
    const Op& head = result[i]->queue.front();
    if (head.kind == Op::Kind::Wait && !head.recording->done) {
      add(head.recording->stream);
    }
    for (const Part& part : head.spec.parts) {
      if (head.arrived && !part.rendezvous->done()) {
        add_participants(*part.rendezvous);
      }
    }
  }
  return result;
}

Stream* Machine::choose_stream(const std::vector<Stream*>& runnable, const Stream* awaited) {
  const auto head = [](const Stream* stream) { return stream->queue.front().number; };
  if (options.seed == kNewestFirst) {
    return *std::ranges::max_element(runnable, {}, &Stream::component);
  }
  if (options.seed == kLazy && awaited != nullptr) {
    std::vector<Stream*> candidates = needed_streams(awaited);
    std::erase_if(candidates, [&](const Stream* stream) { return !contains(runnable, stream); });
    if (!candidates.empty()) {
      return *std::ranges::min_element(candidates, {}, head);
    }
  }
  if (options.seed == kIssueOrder || options.seed == kLazy) {
    return *std::ranges::min_element(runnable, {}, head);
  }
  return runnable[draw(runnable.size())];
}

std::vector<Host*> Machine::runnable_hosts(const Host& me) {
  std::vector<Host*> result;
  for (Host& host : ranks) {
    const bool waits = host.state == Host::State::Waiting;
    const bool may_go_on =
        host.state == Host::State::Ready ||
        (waits && (hung || (host.ready_is_ours ? host.ready() : host.checked_at != progress)));
    if (&host != &me && may_go_on) {
      result.push_back(&host);
    }
  }
  return result;
}

Host* Machine::choose_host(const std::vector<Host*>& hosts, const Host& me) {
  if (options.seed == kNewestFirst) {
    return hosts.back();
  }
  if (options.seed == kIssueOrder || options.seed == kLazy) {
    const auto next =
        std::ranges::find_if(hosts, [&](const Host* host) { return host->rank > me.rank; });
    return next != hosts.end() ? *next : hosts.front();
  }
  return hosts[draw(hosts.size())];
}

bool Machine::goes_to_host(std::size_t num_streams, std::size_t num_hosts) {
  if (num_streams == 0 || num_hosts == 0) {
    return num_streams == 0;
  }
  if (options.seed == kIssueOrder) {
    return false;
  }
  return options.seed == kNewestFirst || options.seed == kLazy ||
         draw(num_streams + num_hosts) < num_hosts;
}

void Machine::maybe_yield(Call& call) {
  if (hung || has_workers() || options.seed == kIssueOrder || options.seed == kLazy) {
    return;
  }
  if (options.seed != kNewestFirst && draw(4) == 0) {
    for (std::uint64_t left = 1 + draw(3); left > 0; --left) {
      const std::vector<Stream*> runnable = runnable_streams(false);
      if (!runnable.empty()) {
        step(*choose_stream(runnable, nullptr));
      }
    }
  }
  if (call.host.rank < 0 || (options.seed != kNewestFirst && draw(4) != 0)) {
    return;
  }
  // What this thread did since may be what others wait for.
  ++progress;
  const std::vector<Host*> hosts = runnable_hosts(call.host);
  if (!hosts.empty() && (options.seed != kNewestFirst || hosts.back()->rank > call.host.rank)) {
    call.host.state = Host::State::Ready;
    hand_over(call.host, *choose_host(hosts, call.host), call.lock);
    call.host.state = Host::State::Running;
  }
}

}  // namespace fsdptrain::fakecuda
