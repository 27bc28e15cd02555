#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "runtime/data/token_file.h"

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

inline std::shared_ptr<const TokenFile> make_token_file(
    const std::filesystem::path& path, const std::vector<std::uint16_t>& tokens,
    std::uint32_t vocab_size, std::optional<std::uint32_t> end_of_document = std::nullopt) {
  TokenFileWriter writer(path, vocab_size, end_of_document, "test");
  writer.append(tokens);
  writer.commit();
  return std::make_shared<TokenFile>(path);
}

}  // namespace fsdptrain::data
