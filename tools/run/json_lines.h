#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/base/file.h"

namespace fsdptrain::tools {

// Writes one JSON object a line into a file (docs/formats.md). A line is there whole or not at
// all, as soon as write() returns.
class JsonLinesWriter {
 public:
  // New: IoError if the file exists. Append: goes on behind the lines that are there, if any; what
  // a process that was killed has left of one is cut off. IoError if the file cannot be made.
  enum class Mode { New, Append };
  explicit JsonLinesWriter(const std::filesystem::path& path, Mode mode = Mode::New);

  // IoError with the system's reason if it refuses; the file ends as before then.
  void write(const std::string& json_line);

 private:
  File file_;
  // Bytes of whole lines.
  std::uint64_t size_ = 0;
};

}  // namespace fsdptrain::tools
