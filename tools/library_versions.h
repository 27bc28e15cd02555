#pragma once

#include <string>
#include <vector>

namespace fsdptrain::tools {

struct LibraryVersion {
  std::string name;
  std::string version;
};

// The libraries that this build was compiled against; of those that the machine may have in another
// version, also the one that runs.
std::vector<LibraryVersion> library_versions();

}  // namespace fsdptrain::tools
