#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/base/file.h"

namespace fsdptrain::tools {

// Writes one JSON object a line into a new file (docs/formats.md). A line is there whole or not
// at all, as soon as write() returns.
class JsonLinesWriter {
 public:
  // IoError if the file exists or cannot be made.
  explicit JsonLinesWriter(const std::filesystem::path& path);

  // IoError with the system's reason if it refuses; the file ends as before then.
  void write(const std::string& json_line);

 private:
  File file_;
  // Bytes of whole lines.
  std::uint64_t size_ = 0;
};

}  // namespace fsdptrain::tools
