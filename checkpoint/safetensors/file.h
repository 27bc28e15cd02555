#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors/header.h"
#include "checkpoint/safetensors/layout.h"
#include "runtime/base/file.h"

// Safetensors files as names and raw bytes; nothing here knows what a Tensor is.
namespace fsdptrain::checkpoint {

// A file whose header has been checked in full: every entry lies in the file and the entries
// cover its data exactly. The file stays open, so a new file renamed over it changes nothing
// here. Threads may read at the same time.
class SafetensorsReader {
 public:
  // DataError if the file is missing or malformed, with a text of its own for each defect.
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // In the order of their bytes.
  const std::vector<TensorEntry>& entries() const { return header_.entries; }

  bool contains(std::string_view name) const { return by_name_.contains(name); }
  // DataError that lists the nearest names if there is no such tensor.
  const TensorEntry& find(std::string_view name) const;

  // Copies the bytes of one of entries(); `out` has exactly as many.
  void read(const TensorEntry& entry, std::span<std::byte> out) const;
  // Only those from `offset` on, as many as `out` has.
  void read_part(const TensorEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  File file_;
  std::uint64_t data_offset_ = 0;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  // index into entries()
};

// Writes a new file; nothing appears at `path` before commit(), and nothing stays if there is no
// commit(). One thread uses a writer.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::map<std::string, std::string> metadata,
                    const std::vector<TensorSpec>& tensors);

  // In the order of their bytes: wide elements first, then by name.
  const std::vector<TensorEntry>& entries() const { return header_.entries; }

  // Writes all bytes of one tensor; tensors may come in any order, each once.
  void write(std::string_view name, std::span<const std::byte> bytes);

  // Replaces an older file at `path`. Every tensor with bytes must have been written.
  void commit();

 private:
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  // index into entries()
  std::vector<bool> written_;                                // by the same index
  AtomicFile file_;
  std::uint64_t data_offset_ = 0;
};

}  // namespace fsdptrain::checkpoint
