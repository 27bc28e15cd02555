#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

// XXH3 (xxHash, version 0.8) of bytes: against damage, not against an attacker.
namespace fsdptrain::checkpoint {

// XXH3-128.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
};

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);
// 32 lower-case hexadecimal digits, the high half first. DataError naming `what` for other text.
std::string to_string(const Digest& digest);
Digest parse_digest(std::string_view text, std::string_view what);

}  // namespace fsdptrain::checkpoint
