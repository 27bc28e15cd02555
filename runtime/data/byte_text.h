#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/token_writer.h"

// The byte tokenizer: every byte of a text is a token, and each document ends with token 256.
namespace fsdptrain::data {

inline constexpr std::uint32_t kByteEndOfDocument = 256;
inline constexpr std::uint32_t kByteVocabSize = 257;
inline constexpr std::string_view kByteTokenizer = "byte";

inline Vocabulary byte_vocabulary() {
  return {kByteVocabSize, kByteEndOfDocument, std::string(kByteTokenizer)};
}

// The documents of a text: the file itself, or all regular files below a folder, sorted by the
// bytes of their paths. DataError if there are none or the path is neither.
std::vector<std::filesystem::path> list_documents(const std::filesystem::path& text);

// The size of all documents together, as the file system states it.
std::uint64_t total_bytes(const std::vector<std::filesystem::path>& documents);

// Appends the documents, an empty one too; DataError if all are empty, IoError if one cannot be
// read. `progress` is told the bytes read so far, at least once per MiB; it may throw to stop.
void append_byte_tokens(const std::vector<std::filesystem::path>& documents, TokenWriter& writer,
                        const std::function<void(std::uint64_t)>& progress = {});

}  // namespace fsdptrain::data
