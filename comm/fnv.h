#pragma once

#include <cstdint>
#include <string_view>

namespace fsdptrain::comm {

// FNV-1a: it tells apart, it does not protect.
class Fnv {
 public:
  void add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) {
      add_byte(static_cast<std::uint8_t>(value >> (8 * i)));
    }
  }
  void add(std::string_view text) {
    for (const char c : text) {
      add_byte(static_cast<std::uint8_t>(c));
    }
  }
  void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3ull; }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace fsdptrain::comm
