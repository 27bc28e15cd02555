#pragma once

#include <filesystem>

namespace fsdptrain::tools {

// Where files that are soon removed again can be made: TMPDIR, else /tmp. PathError where that is
// no folder.
std::filesystem::path temporary_folder();

}  // namespace fsdptrain::tools
