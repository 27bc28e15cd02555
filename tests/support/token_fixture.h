#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "runtime/data/token_source.h"
#include "runtime/data/token_writer.h"

namespace fsdptrain::data {

// A folder of its own under the system's temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "fsdptrain-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_tokens(const TokenWriter::Options& options,
                         const std::vector<std::int64_t>& tokens) {
  TokenWriter writer(options);
  if (bytes_per_token(options.vocabulary) == 2) {
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    writer.append(std::span(narrow));
  } else {
    const std::vector<std::uint32_t> wide(tokens.begin(), tokens.end());
    writer.append(std::span(wide));
  }
  writer.commit();
}

inline std::shared_ptr<const TokenSource> make_token_file(
    const std::filesystem::path& path, const std::vector<std::uint16_t>& tokens,
    std::uint32_t vocab_size, std::optional<std::uint32_t> end_of_document = std::nullopt) {
  write_tokens({path, {vocab_size, end_of_document, "test"}}, {tokens.begin(), tokens.end()});
  return std::make_shared<TokenSource>(path);
}

}  // namespace fsdptrain::data
