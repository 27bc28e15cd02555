#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdptrain::data {

// Which source the samples of a run come from. Samples are numbered in blocks of 1,024 slots; a
// source has as many slots of every block as its weight gives it, the same number in each, and a
// keyed permutation of (seed, block) says where in the block they lie. All computed, from the
// number of the sample alone.
class Mixture {
 public:
  static constexpr std::uint64_t kSlots = 1024;

  struct Place {
    std::size_t source = 0;
    // Counts the samples of this source over the whole run.
    std::uint64_t number = 0;
  };

  // Slots go by largest remainder, the first source first where remainders are equal. A source of
  // weight 0 has none. ConfigError for a weight that is negative or no number, if all are 0, or if
  // one above 0 is too small for a slot.
  Mixture(std::span<const double> weights, std::uint64_t seed);

  // The slots of a source in each block.
  std::uint64_t num_slots(std::size_t source) const {
    return begins_[source + 1] - begins_[source];
  }
  Place operator()(std::uint64_t sample_number) const;

 private:
  std::uint64_t seed_;
  // The first slot of each source before the permutation, and the end.
  std::vector<std::uint64_t> begins_;
};

}  // namespace fsdptrain::data
