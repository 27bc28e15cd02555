#include "runtime/data/byte_text.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace fsdptrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBytesPerRead = std::size_t{1} << 20;

std::vector<fs::path> regular_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    std::error_code error;
    const bool is_file = entry.is_regular_file(error);
    // A link in a circle leads to no file, as one to nothing does.
    if (error && error != std::errc::too_many_symbolic_link_levels) {
      throw fs::filesystem_error("look at", entry.path(), error);
    }
    if (is_file) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files, {},
                    [](const fs::path& file) -> const std::string& { return file.native(); });
  return files;
}

}  // namespace

std::vector<fs::path> list_documents(const fs::path& text) {
  try {
    std::error_code error;
    const fs::file_status status = fs::status(text, error);
    check<DataError>(
        error != std::errc::too_many_symbolic_link_levels && error != std::errc::filename_too_long,
        "{}: cannot be a text: {}", text.native(), error.message());
    if (!fs::status_known(status)) {
      throw fs::filesystem_error("look at", text, error);
    }
    check<DataError>(fs::exists(status), "{}: no such file or folder: check the path",
                     text.native());
    if (fs::is_regular_file(status)) {
      return {text};
    }
    check<DataError>(fs::is_directory(status), "{}: must be a regular file or a folder",
                     text.native());
    std::vector<fs::path> files = regular_files_below(text);
    check<DataError>(!files.empty(), "{}: the folder holds no regular file: there is no text",
                     text.native());
    return files;
  } catch (const fs::filesystem_error& error) {
    fail<IoError>("list {}: {}", text.native(), error.what());
  }
}

std::uint64_t total_bytes(const std::vector<fs::path>& documents) {
  std::uint64_t nbytes = 0;
  for (const fs::path& document : documents) {
    nbytes += File::open_for_reading(document).size();
  }
  return nbytes;
}

void append_byte_tokens(const std::vector<fs::path>& documents, TokenWriter& writer,
                        const std::function<void(std::uint64_t)>& progress) {
  constexpr std::array<std::uint16_t, 1> kEnd{kByteEndOfDocument};
  std::vector<std::byte> bytes(kBytesPerRead);
  std::vector<std::uint16_t> tokens(kBytesPerRead);
  std::uint64_t done = 0;
  for (const fs::path& document : documents) {
    const File file = File::open_for_reading(document);
    std::uint64_t offset = 0;
    while (const std::size_t nbytes = file.read_at(offset, bytes)) {
      offset += nbytes;
      std::transform(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(nbytes),
                     tokens.begin(), [](std::byte b) { return static_cast<std::uint16_t>(b); });
      writer.append(std::span(tokens).first(nbytes));
      done += nbytes;
      if (progress) {
        progress(done);
      }
    }
    writer.append(std::span(kEnd));
  }
  check<DataError>(done > 0, "{}: the text is empty: there is nothing to learn from",
                   documents.empty() ? "no document" : documents.front().native());
}

}  // namespace fsdptrain::data
