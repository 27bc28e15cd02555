#include "tests/fakecuda/rank_schedule.h"

#include <fmt/format.h>

#include "tests/fakecuda/call.h"
#include "tests/fakecuda/thread_sanitizer.h"

namespace fsdptrain::fakecuda {

RankSchedule::RankSchedule(Machine& machine, int num_threads) : machine_(machine) {
  for (int rank = 0; rank < num_threads; ++rank) {
    Host& host = machine.ranks.emplace_back();
    host.rank = rank;
    host.name = fmt::format("rank {}", rank);
    host.component = machine.num_components++;
    host.clock.tick(host.component);
    host.state = Host::State::Waiting;
  }
}

Host& RankSchedule::host_of(int rank) {
  check(rank >= 0 && rank < static_cast<int>(machine_.ranks.size()),
        "fake CUDA: the schedule is for {} ranks, got rank {}", machine_.ranks.size(), rank);
  return machine_.ranks[static_cast<std::size_t>(rank)];
}

void RankSchedule::begin(int rank) {
  const Quiet quiet(machine_.has_workers());
  std::unique_lock lock(machine_.mutex);
  Host& host = host_of(rank);
  this_thread(machine_).rank = &host;
  machine_.begin(host, lock);
}

void RankSchedule::end(int rank) {
  const Quiet quiet(machine_.has_workers());
  const std::unique_lock lock(machine_.mutex);
  this_thread(machine_).rank = nullptr;
  machine_.end(host_of(rank));
}

void RankSchedule::wait(const std::function<bool()>& ready) {
  const Quiet quiet(machine_.has_workers());
  std::unique_lock lock(machine_.mutex);
  Host* host = this_thread(machine_).rank;
  check(host != nullptr, "fake CUDA: a thread waits that never began as a rank");
  Call call{.name = "wait", .host = *host, .lock = lock, .site = CallSite::here()};
  host->last_call = call.name;
  host->last_site = call.site;
  machine_.wait(call, ready);
}

}  // namespace fsdptrain::fakecuda
