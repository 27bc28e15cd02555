#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file_system.h"
#include "runtime/base/random.h"

// Whole files of a FileSystem, for tests.
namespace fsdptrain::testing {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> bytes;
  bytes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(philox(i, 0, seed).word[0]));
  }
  return bytes;
}

inline std::string file_text(checkpoint::FileSystem& files, const std::filesystem::path& path) {
  return checkpoint::read_text(files, path, ~std::uint64_t{0});
}

// Replaces what is there; nothing of it is synced.
inline void put_file(checkpoint::FileSystem& files, const std::filesystem::path& path,
                     std::string_view text) {
  if (files.kind_of(path)) {
    files.remove_file(path);
  }
  const auto file = files.create(path);
  file->write_at(0, bytes_of(text));
  file->close();
}

}  // namespace fsdptrain::testing
