#include "tools/generate/byte_prompt.h"

#include "runtime/data/byte_text.h"

namespace fsdptrain::tools {

std::vector<std::int64_t> byte_tokens(std::string_view text) {
  std::vector<std::int64_t> tokens;
  for (const char letter : text) {
    tokens.push_back(static_cast<unsigned char>(letter));
  }
  return tokens;
}

std::string text_of_byte_token(std::int64_t token) {
  return token < data::kByteEndOfDocument ? std::string(1, static_cast<char>(token)) : "\n\n";
}

}  // namespace fsdptrain::tools
