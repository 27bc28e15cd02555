#include "comm/ranks.h"

#include <cstddef>
#include <fmt/format.h>

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

}  // namespace fsdptrain::comm
