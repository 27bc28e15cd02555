#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdptrain::data {

enum class TextFormat : std::uint8_t {
  Text,   // a file is a document
  Jsonl,  // a line is a JSON object, one field of which is a document
};

struct TextFile {
  std::filesystem::path path;
  TextFormat format = TextFormat::Text;
  // When it was listed.
  std::uint64_t nbytes = 0;
  // Of a text: where it begins, behind a byte order mark.
  std::uint64_t begin = 0;
};

// In front of a UTF-8 file it says so, and is no part of the text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The files of a text: of each path the file itself, or all regular files below a folder, sorted by
// the bytes of their paths. A name that ends with .jsonl is JSONL, any other text, unless `format`
// says what all are. DataError if a path is neither, a folder holds no file, or a file is one of
// tokens; PathError for one that cannot be opened, links to nothing among them.
std::vector<TextFile> list_texts(const std::vector<std::filesystem::path>& paths,
                                 std::optional<TextFormat> format = std::nullopt);

}  // namespace fsdptrain::data
