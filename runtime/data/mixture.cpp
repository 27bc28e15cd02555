#include "runtime/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/permutation.h"

namespace fsdptrain::data {
namespace {

// The order of slots has a stream of its own, above those of the sources.
constexpr std::uint64_t kSlotStream = (1 << 24) - 1;

double checked_sum(std::span<const double> weights) {
  for (std::size_t source = 0; source < weights.size(); ++source) {
    check<ConfigError>(weights[source] >= 0 && std::isfinite(weights[source]),
                       "mixture: the weight of source {} must be a number from 0 on, got {}",
                       source, weights[source]);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  check<ConfigError>(sum > 0 && std::isfinite(sum),
                     "mixture: the weights of {} sources must have a positive sum, got {}",
                     weights.size(), sum);
  check<ConfigError>(weights.size() < kSlotStream, "mixture: at most {} sources, got {}",
                     kSlotStream - 1, weights.size());
  return sum;
}

std::vector<std::uint64_t> slots_of(std::span<const double> weights) {
  const double sum = checked_sum(weights);
  std::vector<std::uint64_t> slots;
  std::vector<double> remainders;
  std::uint64_t given = 0;
  for (const double weight : weights) {
    const double quota = weight / sum * static_cast<double>(Mixture::kSlots);
    slots.push_back(static_cast<std::uint64_t>(quota));
    remainders.push_back(quota - static_cast<double>(slots.back()));
    given += slots.back();
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; given < Mixture::kSlots; ++i, ++given) {
    ++slots[order[i % order.size()]];
  }
  for (std::size_t source = 0; source < weights.size(); ++source) {
    // One slot of all is a share of 1 / 1,024: of the others' sum, 1 / 1,023.
    check<ConfigError>(weights[source] == 0 || slots[source] > 0,
                       "mixture: the weight {} of source {} is less than one of {} samples: the "
                       "smallest possible weight beside the others is {:.6g}; 0 leaves it out",
                       weights[source], source, Mixture::kSlots,
                       (sum - weights[source]) / static_cast<double>(Mixture::kSlots - 1));
  }
  return slots;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights, std::uint64_t seed) : seed_(seed), begins_{0} {
  for (const std::uint64_t count : slots_of(weights)) {
    begins_.push_back(begins_.back() + count);
  }
}

Mixture::Place Mixture::operator()(std::uint64_t sample_number) const {
  const std::uint64_t block = sample_number / kSlots;
  const Permutation order(kSlots, {.seed = seed_, .stream = kSlotStream, .epoch = block});
  const std::uint64_t slot = order(sample_number % kSlots);
  const auto source =
      static_cast<std::size_t>(std::ranges::upper_bound(begins_, slot) - begins_.begin()) - 1;
  return {source, block * num_slots(source) + (slot - begins_[source])};
}

}  // namespace fsdptrain::data
