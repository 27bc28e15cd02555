#include "checkpoint/format/blocks/digest.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <xxhash.h>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

constexpr std::size_t kHalfDigits = 16;

bool is_hex_digit(char digit) {
  return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
}

std::uint64_t parse_half(std::string_view digits) {
  constexpr int kBase = 16;
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, kBase);
  return value;
}

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

Digest digest_of(std::string_view text) {
  return digest_of(std::as_bytes(std::span(text)));
}

std::string to_string(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

Digest parse_digest(std::string_view text, std::string_view what) {
  check<DataError>(text.size() == 2 * kHalfDigits && std::ranges::all_of(text, is_hex_digit),
                   "{}: a digest has 32 lower-case hexadecimal digits, got {}", what, shown(text));
  return {.high = parse_half(text.substr(0, kHalfDigits)),
          .low = parse_half(text.substr(kHalfDigits))};
}

}  // namespace fsdptrain::checkpoint
