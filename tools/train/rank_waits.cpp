#include "tools/train/rank_waits.h"

#include <algorithm>
#include <iterator>

#include "comm/operation.h"

namespace fsdptrain::tools {
namespace {

std::vector<double> in_seconds(std::span<const std::int64_t> nanoseconds) {
  std::vector<double> seconds;
  std::ranges::transform(nanoseconds, std::back_inserter(seconds),
                         [](std::int64_t time) { return static_cast<double>(time) * 1e-9; });
  return seconds;
}

}  // namespace

WaitSummary summarize(std::span<const std::int64_t> waited,
                      std::span<const std::int64_t> waited_for) {
  WaitSummary summary{in_seconds(waited), in_seconds(waited_for), std::nullopt};
  const auto longest = std::ranges::max_element(waited_for);
  if (longest != waited_for.end() && *longest > 0) {
    summary.straggler = static_cast<int>(longest - waited_for.begin());
  }
  return summary;
}

void RankWaits::restart() {
  const auto waits = world_.waits();
  begin_.assign(waits.begin(), waits.end());
}

std::optional<WaitSummary> RankWaits::summary() {
  if (world_.device() != Device::cpu()) {
    return std::nullopt;
  }
  const auto size = static_cast<std::size_t>(world_.size());
  const auto waits = world_.waits();
  // First how long each rank waited, then how long it was waited for: every rank adds its view.
  const Tensor views = Tensor::zeros({2 * world_.size()}, DType::Int64);
  const auto values = views.mutable_values<std::int64_t>();
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::int64_t wait = (waits[rank] - begin_[rank]).count();
    values[static_cast<std::size_t>(world_.rank())] += wait;
    values[size + rank] = wait;
  }
  world_.control().issue(comm::all_reduce(views)).wait();
  const auto sums = views.values<std::int64_t>();
  return summarize(sums.first(size), sums.subspan(size));
}

}  // namespace fsdptrain::tools
