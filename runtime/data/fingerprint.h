#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/base/file.h"

// Says whether a file is the one that a run began with (docs/formats.md): its size, and XXH3-128
// of its bytes or of samples of them. No protection against somebody who wants to deceive.
namespace fsdptrain::data {

struct Fingerprint {
  bool is_whole = false;
  std::uint64_t nbytes = 0;
  std::uint64_t hash_high = 0;
  std::uint64_t hash_low = 0;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// "xxh3-samples:4311104:" or "xxh3:4311104:", and 32 hexadecimal digits.
std::string to_string(const Fingerprint& fingerprint);

inline constexpr std::uint64_t kFingerprintBlockBytes = 4096;
// Head, tail and 256 between them.
inline constexpr std::uint64_t kFingerprintBlocks = 258;

// Where block i begins, of a file larger than all blocks: floor(i (nbytes - 4096) / 257).
std::uint64_t fingerprint_offset(std::uint64_t nbytes, std::uint64_t block);

// Of the head, the tail and 256 blocks that the size alone places, or of all bytes where the file
// is no larger than those together: 1 MiB and 8 KiB are read. DataError if the file shrinks
// meanwhile.
Fingerprint sampled_fingerprint(const File& file);

// Of every byte. `part` is told each piece of the file and its offset, in order; all pieces but
// the last have 2^20 bytes.
Fingerprint whole_fingerprint(
    const File& file,
    const std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>& part = {});

}  // namespace fsdptrain::data
