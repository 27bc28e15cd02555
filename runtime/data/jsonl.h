#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"

namespace simdjson::dom {
class element;
class parser;
}  // namespace simdjson::dom

namespace fsdptrain::data {

// What is wrong with a line, which counts from 1 in the part that was read.
struct JsonlDefect {
  std::uint64_t line = 0;
  std::string message;
};

struct JsonlLines {
  std::uint64_t num_lines = 0;
  // Of the first line that is wrong; nothing behind it was read.
  std::optional<JsonlDefect> defect;
};

// Reads parts of JSONL files: every line is one JSON object, and one field of it, a string, is the
// text of a document. Lines of white space alone are passed over, and so is a byte order mark in
// front of the first. Numbers may be of any size: none is read. Keeps its buffers, as large as the
// longest line, from part to part; for one thread.
class JsonlReader {
 public:
  explicit JsonlReader(std::string field);
  ~JsonlReader();

  // Calls `document` with the text of each line that starts in [begin, end) of a file of `nbytes`,
  // in order; the text is gone when it returns. DataError if the file has become shorter.
  JsonlLines read(const File& file, std::uint64_t nbytes, std::uint64_t begin, std::uint64_t end,
                  const std::function<void(std::string_view text)>& document);

 private:
  std::string_view load_lines(const File& file, std::uint64_t nbytes, std::uint64_t begin,
                              std::uint64_t end);
  simdjson::dom::element parse(std::string_view line, std::string& defect);
  std::string_view read_text(std::string_view line, std::string& defect);

  std::string field_;
  std::unique_ptr<simdjson::dom::parser> parser_;
  std::vector<char> buffer_;
  // A line without its numbers.
  std::vector<char> line_;
};

}  // namespace fsdptrain::data
