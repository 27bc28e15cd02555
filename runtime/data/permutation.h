#pragma once

#include <cstdint>

namespace fsdptrain::data {

// A keyed permutation of [0, size), computed and never stored: a Feistel network of Philox
// rounds over the smallest even number of bits that holds the size, walked until the value falls
// below it (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002: less than
// four rounds of the network on average). Equal on every machine: resuming needs no state.
class Permutation {
 public:
  // ConfigError for a size of 0.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

  std::uint64_t size() const { return size_; }
  // REQUIRES: index < size().
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  int half_bits_ = 1;
  std::uint64_t key_;
};

// The sample that the run uses as its `sample_number`-th, over all epochs: each epoch is a
// permutation of its own.
std::uint64_t sample_index(std::uint64_t seed, std::uint64_t num_samples,
                           std::uint64_t sample_number);

}  // namespace fsdptrain::data
