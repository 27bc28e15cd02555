#include "runtime/data/fingerprint.h"

#include <numeric>
#include <xxhash.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::data {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

TEST_SUITE_BEGIN("runtime/data/fingerprint");

std::string random_bytes(std::size_t nbytes) {
  std::string bytes(nbytes, '\0');
  for (std::size_t i = 0; i < nbytes; ++i) {
    bytes[i] = static_cast<char>(philox(i, 0, 5).word[0]);
  }
  return bytes;
}

Fingerprint sampled(const std::filesystem::path& path) {
  return sampled_fingerprint(File::open_for_reading(path));
}

Fingerprint whole(const std::filesystem::path& path) {
  return whole_fingerprint(File::open_for_reading(path));
}

std::string hex(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

TEST_CASE("no bytes have the published value") {
  const TemporaryFolder folder;
  write_file(folder / "t", "");
  CHECK(to_string(whole(folder / "t")) == "xxh3:0:99aa06d3014798d86001c324468d497f");
  CHECK(to_string(sampled(folder / "t")) == "xxh3-samples:0:99aa06d3014798d86001c324468d497f");
}

TEST_CASE("the whole is the hash of all bytes, told in order") {
  for (const std::size_t nbytes :
       {std::size_t{1}, std::size_t{4097}, std::size_t{1} << 20, (std::size_t{1} << 21) + 77}) {
    const TemporaryFolder folder;
    const std::string bytes = random_bytes(nbytes);
    write_file(folder / "t", bytes);
    std::string told;
    const Fingerprint fingerprint =
        whole_fingerprint(File::open_for_reading(folder / "t"),
                          [&told](std::uint64_t offset, std::span<const std::byte> part) {
                            CHECK(offset == told.size());
                            told.append(reinterpret_cast<const char*>(part.data()), part.size());
                          });
    CHECK(told == bytes);
    CHECK(to_string(fingerprint) == fmt::format("xxh3:{}:{}", nbytes, hex(bytes)));
  }
}

TEST_CASE("samples are head, tail and 256 blocks between, or all of a small file") {
  constexpr std::size_t kAll = 258 * 4096;
  for (const std::size_t nbytes : {std::size_t{9}, kAll, kAll + 1, kAll + 4095, 3 * kAll + 17}) {
    CAPTURE(nbytes);
    const TemporaryFolder folder;
    const std::string bytes = random_bytes(nbytes);
    write_file(folder / "t", bytes);
    std::string blocks = bytes;
    if (nbytes > kAll) {
      blocks.clear();
      for (std::size_t i = 0; i <= 257; ++i) {
        blocks += bytes.substr(i * (nbytes - 4096) / 257, 4096);
      }
      CHECK(blocks.substr(0, 4096) == bytes.substr(0, 4096));
      CHECK(blocks.substr(257 * 4096) == bytes.substr(nbytes - 4096));
    }
    CHECK(to_string(sampled(folder / "t")) ==
          fmt::format("xxh3-samples:{}:{}", nbytes, hex(blocks)));
  }
}

TEST_CASE("places fit every size and never pass the end") {
  for (const std::uint64_t nbytes :
       {std::uint64_t{258 * 4096 + 1}, std::uint64_t{1} << 40, (std::uint64_t{1} << 63) - 1}) {
    std::uint64_t last = 0;
    for (std::uint64_t block = 1; block < kFingerprintBlocks; ++block) {
      const std::uint64_t offset = fingerprint_offset(nbytes, block);
      CHECK(offset >= last + kFingerprintBlockBytes);
      last = offset;
    }
    CHECK(last == nbytes - kFingerprintBlockBytes);
  }
}

TEST_CASE("a change of size, head or tail is seen by samples, any change by the whole") {
  const TemporaryFolder folder;
  std::string bytes(std::size_t{4} << 20, 'x');
  write_file(folder / "t", bytes);
  const Fingerprint samples = sampled(folder / "t");
  const Fingerprint all = whole(folder / "t");
  for (const std::size_t place : {std::size_t{0}, bytes.size() - 1, std::size_t{4096}}) {
    bytes[place] = 'y';
    write_file(folder / "t", bytes);
    // Between head and second block nothing is sampled.
    CHECK((sampled(folder / "t") == samples) == (place == 4096));
    CHECK_FALSE(whole(folder / "t") == all);
    bytes[place] = 'x';
  }
  write_file(folder / "t", bytes + "x");
  CHECK_FALSE(sampled(folder / "t") == samples);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
