#include "runtime/data/text_files.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace fsdptrain::data {
namespace {

namespace fs = std::filesystem;

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

std::vector<fs::path> files_of(const fs::path& text) {
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

}  // namespace

std::vector<TextFile> list_texts(const std::vector<fs::path>& paths,
                                 std::optional<TextFormat> format) {
  std::vector<TextFile> files;
  for (const fs::path& path : paths) {
    for (const fs::path& file : files_of(path)) {
      const TextFormat of_name =
          file.extension() == ".jsonl" ? TextFormat::Jsonl : TextFormat::Text;
      files.push_back({file, format.value_or(of_name), File::open_for_reading(file).size()});
    }
  }
  return files;
}

}  // namespace fsdptrain::data
