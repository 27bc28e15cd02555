#pragma once

#include <filesystem>
#include <string_view>

namespace fsdptrain::tools {

// A copy of the ring behind the descriptor, as `fsdptrain flight show` reads it. IoError.
void write_ring(int descriptor, const std::filesystem::path& path);
// A new file of this text. IoError.
void write_text(std::string_view text, const std::filesystem::path& path);

}  // namespace fsdptrain::tools
