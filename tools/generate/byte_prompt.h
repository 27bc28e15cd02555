#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Between text and the tokens of the byte tokenizer.
namespace fsdptrain::tools {

// Without the token that ends a document.
std::vector<std::int64_t> byte_tokens(std::string_view text);

// What a token adds to a text that is shown: its byte, or an empty line where a document ends.
std::string text_of_byte_token(std::int64_t token);

}  // namespace fsdptrain::tools
