#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/token_source.h"
#include "runtime/data/token_writer.h"

namespace fsdptrain::testing {

inline void write_tokens(const data::TokenWriter::Options& options,
                         const std::vector<std::int64_t>& tokens) {
  data::TokenWriter writer(options);
  if (data::bytes_per_token(options.vocabulary) == 2) {
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    writer.append(std::span(narrow));
  } else {
    const std::vector<std::uint32_t> wide(tokens.begin(), tokens.end());
    writer.append(std::span(wide));
  }
  writer.commit();
}

inline std::shared_ptr<const data::TokenSource> make_token_file(
    const std::filesystem::path& path, const std::vector<std::uint16_t>& tokens,
    std::uint32_t vocab_size, std::optional<std::uint32_t> end_of_document = std::nullopt) {
  write_tokens({path, {vocab_size, end_of_document, "test"}}, {tokens.begin(), tokens.end()});
  return std::make_shared<data::TokenSource>(path);
}

}  // namespace fsdptrain::testing
