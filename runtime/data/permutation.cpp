#include "runtime/data/permutation.h"

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace fsdptrain::data {
namespace {

// Keeps the order of data apart from all other uses of a seed; 40 bits, streams have the rest.
constexpr std::uint64_t kPurpose = 0x6f72646572;  // "order"
constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(std::uint64_t size, const PermutationKey& key) : size_(size) {
  check<ConfigError>(size > 0, "permutation: the size must be positive, got {}", size);
  while (half_bits_ < 32 && (size - 1) >> (2 * half_bits_) != 0) {
    ++half_bits_;
  }
  const Philox words = philox(key.epoch, kPurpose | key.stream << 40, key.seed);
  key_ = words.word[0] | std::uint64_t{words.word[1]} << 32;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (philox(right, round, key_).word[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  // Ends: the walk follows a cycle of the larger permutation that returns to `index`.
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

}  // namespace fsdptrain::data
