#include "tools/train/json_lines.h"

#include <optional>
#include <span>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

File create_new(const std::filesystem::path& path) {
  std::optional<File> file = File::create(path);
  check<IoError>(file.has_value(), "{}: exists already: move it away", path.string());
  return std::move(*file);
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(const std::filesystem::path& path) : file_(create_new(path)) {}

void JsonLinesWriter::write(const std::string& json_line) {
  const std::string line = json_line + "\n";
  try {
    // Goes on behind a short write, so that the system says what stands in the way.
    file_.write_at(size_, std::as_bytes(std::span(line)));
  } catch (Error& error) {
    if (::ftruncate(file_.descriptor(), static_cast<off_t>(size_)) != 0) {
      error.add_context("half a line is left");
    }
    throw;
  }
  size_ += line.size();
}

}  // namespace fsdptrain::tools
