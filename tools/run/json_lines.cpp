#include "tools/run/json_lines.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <system_error>
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

File open_to_append(const std::filesystem::path& path) {
  std::optional<File> file = File::create(path);
  return file ? std::move(*file) : File::open_for_update(path);
}

// Up to the end of the last whole line.
std::uint64_t whole_lines(const File& file) {
  constexpr std::uint64_t kPart = 65536;
  std::string part;
  for (std::uint64_t end = file.size(); end > 0;) {
    const std::uint64_t begin = end - std::min(end, kPart);
    part.resize(end - begin);
    file.read_at(begin, std::as_writable_bytes(std::span(part)));
    if (const std::size_t last = part.rfind('\n'); last != std::string::npos) {
      return begin + last + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(const std::filesystem::path& path, Mode mode)
    : file_(mode == Mode::New ? create_new(path) : open_to_append(path)) {
  if (mode == Mode::Append && file_.size() > 0) {
    size_ = whole_lines(file_);
    const bool is_cut = ::ftruncate(file_.descriptor(), static_cast<off_t>(size_)) == 0;
    const int error = errno;
    check<IoError>(is_cut, "{}: what a killed run has left of its last line cannot be cut off: {}",
                   path.string(), std::generic_category().message(error));
  }
}

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
