#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/error.h"

// Numbers and strings as they lie in frames: little-endian, strings behind their length. Bytes are
// kept in std::string, in all of the store: any of the 256 values, no encoding.
namespace fsdptrain::comm::store {

class WireWriter {
 public:
  WireWriter& u8(std::uint8_t value) { return little_endian(value, 1); }
  WireWriter& u16(std::uint16_t value) { return little_endian(value, 2); }
  WireWriter& u32(std::uint32_t value) { return little_endian(value, 4); }
  WireWriter& u64(std::uint64_t value) { return little_endian(value, 8); }
  WireWriter& raw(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  // REQUIRES: less than 64 KiB.
  WireWriter& text16(std::string_view text) {
    return u16(static_cast<std::uint16_t>(text.size())).raw(text);
  }
  WireWriter& text32(std::string_view text) {
    return u32(static_cast<std::uint32_t>(text.size())).raw(text);
  }

  std::string take() { return std::move(bytes_); }

 private:
  WireWriter& little_endian(std::uint64_t value, int nbytes) {
    for (int i = 0; i < nbytes; ++i) {
      bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    }
    return *this;
  }

  std::string bytes_;
};

// Reads from the front of `bytes`, which must outlive it. What is missing is a ProtocolError that
// names `what`.
class WireReader {
 public:
  WireReader(std::string_view bytes, const char* what) : rest_(bytes), what_(what) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(little_endian(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(little_endian(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(little_endian(4)); }
  std::uint64_t u64() { return little_endian(8); }
  std::string_view text16() { return raw(u16()); }
  std::string_view text32() { return raw(u32()); }
  std::string_view rest() { return raw(rest_.size()); }

  std::string_view raw(std::size_t nbytes) {
    check<ProtocolError>(nbytes <= rest_.size(), "store: {}: {} bytes must follow, got {}", what_,
                         nbytes, rest_.size());
    const std::string_view bytes = rest_.substr(0, nbytes);
    rest_.remove_prefix(nbytes);
    return bytes;
  }
  // All was read.
  void finish() const {
    check<ProtocolError>(rest_.empty(), "store: {}: must end here, got {} bytes more", what_,
                         rest_.size());
  }

 private:
  std::uint64_t little_endian(std::size_t nbytes) {
    const std::string_view bytes = raw(nbytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < nbytes; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return value;
  }

  std::string_view rest_;
  const char* what_;
};

}  // namespace fsdptrain::comm::store
