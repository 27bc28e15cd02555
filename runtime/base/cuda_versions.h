#pragma once

#include <string>

namespace fsdptrain {

// Of the CUDA runtime: "13.0" and the like.
struct CudaVersions {
  // What this program was compiled against, or "not built".
  std::string built;
  // What it has loaded, or "not built".
  std::string running;
  // The newest that the driver of this machine serves, or "none".
  std::string driver;
};

// Defined by the program's set of CUDA objects. Never throws for what a machine does not have.
CudaVersions cuda_versions();

}  // namespace fsdptrain
