#include "runtime/data/fingerprint.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <vector>
#include <xxhash.h>

#include "runtime/base/error.h"

namespace fsdptrain::data {
namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 20;

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) {
    check<OutOfMemoryError>(state_ != nullptr && XXH3_128bits_reset(state_.get()) == XXH_OK,
                            "fingerprint: no memory for the state of a hash");
  }

  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }

  Fingerprint finish(bool is_whole, std::uint64_t nbytes) const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {is_whole, nbytes, hash.high64, hash.low64};
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

void read_exactly(const File& file, std::uint64_t offset, std::span<std::byte> out) {
  const std::size_t nbytes = file.read_at(offset, out);
  check<DataError>(nbytes == out.size(),
                   "{}: became shorter while it was read: {} bytes at offset {}, expected {}",
                   file.path().native(), nbytes, offset, out.size());
}

}  // namespace

std::string to_string(const Fingerprint& fingerprint) {
  return fmt::format("{}:{}:{:016x}{:016x}", fingerprint.is_whole ? "xxh3" : "xxh3-samples",
                     fingerprint.nbytes, fingerprint.hash_high, fingerprint.hash_low);
}

std::uint64_t fingerprint_offset(std::uint64_t nbytes, std::uint64_t block) {
  constexpr std::uint64_t kLast = kFingerprintBlocks - 1;
  const std::uint64_t range = nbytes - kFingerprintBlockBytes;
  // The product itself would not fit 64 bits for every size.
  return range / kLast * block + range % kLast * block / kLast;
}

Fingerprint sampled_fingerprint(const File& file) {
  const std::uint64_t nbytes = file.size();
  Hash hash;
  if (nbytes <= kFingerprintBlocks * kFingerprintBlockBytes) {
    std::vector<std::byte> all(nbytes);
    read_exactly(file, 0, all);
    hash.add(all);
    return hash.finish(false, nbytes);
  }
  std::vector<std::byte> bytes(kFingerprintBlockBytes);
  for (std::uint64_t block = 0; block < kFingerprintBlocks; ++block) {
    read_exactly(file, fingerprint_offset(nbytes, block), bytes);
    hash.add(bytes);
  }
  return hash.finish(false, nbytes);
}

Fingerprint whole_fingerprint(
    const File& file,
    const std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>& part) {
  const std::uint64_t nbytes = file.size();
  Hash hash;
  std::vector<std::byte> bytes(std::min<std::uint64_t>(kPartBytes, nbytes));
  for (std::uint64_t offset = 0; offset < nbytes; offset += kPartBytes) {
    const auto piece = std::span(bytes).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(kPartBytes, nbytes - offset)));
    read_exactly(file, offset, piece);
    hash.add(piece);
    if (part) {
      part(offset, piece);
    }
  }
  return hash.finish(true, nbytes);
}

}  // namespace fsdptrain::data
