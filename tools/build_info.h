#pragma once

#include <string_view>

namespace fsdptrain::tools {

// What this binary was built from; written at each build (cmake/FsdptrainBuildInfo.cmake).
struct BuildInfo {
  std::string_view version;
  // With "-dirty" where the tree had changes; "unknown" without git.
  std::string_view commit;
  std::string_view compiler;
  std::string_view build_type;
  std::string_view gemm;  // dnnl or eigen
};

BuildInfo build_info();

}  // namespace fsdptrain::tools
