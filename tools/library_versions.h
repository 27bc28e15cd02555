#pragma once

#include <string>
#include <vector>

namespace fsdptrain::tools {

struct LibraryVersion {
  std::string name;
  std::string version;
};

// The libraries that this build was compiled against.
std::vector<LibraryVersion> library_versions();

}  // namespace fsdptrain::tools
