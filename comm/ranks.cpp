#include "comm/ranks.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

// Shorter runs read better as single numbers.
constexpr std::size_t kShortestStride = 4;

// How many ranks from `first` on are one step apart from each other.
std::size_t run_length(std::span<const int> ranks, std::size_t first, int step) {
  std::size_t length = 1;
  while (first + length < ranks.size() &&
         ranks[first + length] - ranks[first + length - 1] == step) {
    ++length;
  }
  return length;
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    const int step = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 0;
    const std::size_t length = run_length(ranks, i, step);
    text += text.empty() ? "" : ", ";
    if (step == 1) {
      text += fmt::format("{}-{}", ranks[i], ranks[i + length - 1]);
    } else if (step > 1 && length >= kShortestStride) {
      text += fmt::format("{}-{} by {}", ranks[i], ranks[i + length - 1], step);
    } else {
      text += fmt::format("{}", ranks[i]);
      ++i;
      continue;
    }
    i += length;
  }
  return text;
}

std::string named_ranks(std::span<const int> ranks) {
  if (ranks.empty()) {
    return "no rank";
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranks_text(ranks);
}

int index_in_group(std::string_view name, std::span<const int> ranks, int rank, int world_size) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  check<ConfigError>(!sorted.empty() && sorted.front() >= 0 && sorted.back() < world_size,
                     "group '{}': its ranks must be 0 to {}, got {}", name, world_size - 1,
                     fmt::join(ranks, ", "));
  check<ConfigError>(std::ranges::adjacent_find(sorted) == sorted.end(),
                     "group '{}': a rank is in it twice: {}", name, fmt::join(ranks, ", "));
  const auto mine = std::ranges::find(ranks, rank);
  check<ConfigError>(mine != ranks.end(), "group '{}': rank {} makes it but is not one of {}", name,
                     rank, fmt::join(ranks, ", "));
  return static_cast<int>(mine - ranks.begin());
}

}  // namespace fsdptrain::comm
