#include "runtime/data/text_files.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/token_header.h"

namespace fsdptrain::data {
namespace {

namespace fs = std::filesystem;

// Of what a link leads to. PathError where that cannot be said.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) {
    fail_path(path, "opening the text", error.value());
  }
  return status.type();
}

// A link to a file counts as one; a link to a folder is not followed.
std::vector<fs::path> regular_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  fs::path listed = folder;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    listed = entry->path();
    if (type_of(listed) == fs::file_type::regular) {
      files.push_back(listed);
    }
  }
  if (error) {
    fail_path(listed, "listing the folder", error.value());
  }
  std::ranges::sort(files, {},
                    [](const fs::path& file) -> const std::string& { return file.native(); });
  return files;
}

std::vector<fs::path> files_of(const fs::path& text) {
  std::error_code unknown;  // type_of() says why
  check<DataError>(fs::symlink_status(text, unknown).type() != fs::file_type::not_found,
                   "{}: no such file or folder: check the path", text.native());
  const fs::file_type type = type_of(text);
  if (type == fs::file_type::regular) {
    return {text};
  }
  check<DataError>(type == fs::file_type::directory, "{}: must be a regular file or a folder",
                   text.native());
  std::vector<fs::path> files = regular_files_below(text);
  check<DataError>(!files.empty(), "{}: the folder holds no regular file: there is no text",
                   text.native());
  return files;
}

TextFile describe(const fs::path& path, TextFormat format) {
  const File file = File::open_for_reading(path);
  check<DataError>(!is_token_file(file),
                   "{}: is a token file already: train on it (data.tokens), or leave it out of the "
                   "texts",
                   path.native());
  std::array<char, kByteOrderMark.size()> head{};
  file.read_at(0, std::as_writable_bytes(std::span(head)));
  const bool has_mark = std::string_view(head.data(), head.size()) == kByteOrderMark;
  return {path, format, file.size(), has_mark ? head.size() : 0};
}

}  // namespace

std::vector<TextFile> list_texts(const std::vector<fs::path>& paths,
                                 std::optional<TextFormat> format) {
  std::vector<TextFile> files;
  for (const fs::path& path : paths) {
    for (const fs::path& file : files_of(path)) {
      const TextFormat of_name =
          file.extension() == ".jsonl" ? TextFormat::Jsonl : TextFormat::Text;
      files.push_back(describe(file, format.value_or(of_name)));
    }
  }
  return files;
}

}  // namespace fsdptrain::data
