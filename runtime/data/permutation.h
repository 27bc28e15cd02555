#pragma once

#include <cstdint>

namespace fsdptrain::data {

// What an order follows from: of one seed, each stream and each epoch of it has its own.
struct PermutationKey {
  std::uint64_t seed = 0;
  // Below 2^24.
  std::uint64_t stream = 0;
  std::uint64_t epoch = 0;
};

// A keyed permutation of [0, size), computed and never stored: a Feistel network of Philox
// rounds over the smallest even number of bits that holds the size, walked until the value falls
// below it (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002: less than
// four rounds of the network on average). Equal on every machine: resuming needs no state.
class Permutation {
 public:
  // ConfigError for a size of 0.
  Permutation(std::uint64_t size, const PermutationKey& key);

  std::uint64_t size() const { return size_; }
  // REQUIRES: index < size().
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  int half_bits_ = 1;
  std::uint64_t key_;
};

}  // namespace fsdptrain::data
