#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/data/token_header.h"

// The byte tokenizer: every byte of a text is a token, and each document ends with token 256.
namespace fsdptrain::data {

inline constexpr std::uint32_t kByteEndOfDocument = 256;
inline constexpr std::uint32_t kByteVocabSize = 257;
inline constexpr std::string_view kByteTokenizer = "byte";

inline Vocabulary byte_vocabulary() {
  return {kByteVocabSize, kByteEndOfDocument, std::string(kByteTokenizer)};
}

}  // namespace fsdptrain::data
