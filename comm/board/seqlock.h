#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

namespace fsdptrain::comm {

// A value that one thread writes and others read, in memory that processes share. A reader gets a
// whole value or, while it is being written, nothing; a writer that dies never blocks it.
template <class T>
class Seqlock {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void store(const T& value) {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof(T));
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kWords; ++i) {
      words_[i].store(words[i], std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release);
  }

  std::optional<T> load() const {
    std::array<std::uint64_t, kWords> words{};
    const std::uint32_t before = version_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    if (before % 2 != 0 || version_.load(std::memory_order_relaxed) != before) {
      return std::nullopt;
    }
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 private:
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;

  std::atomic<std::uint32_t> version_{0};
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace fsdptrain::comm
