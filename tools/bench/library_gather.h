#pragma once

#include <memory>

#include "comm/gloo/connect.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::tools {

// gloo's own all_gather, on connections of its own.
class LibraryGather {
 public:
  // Blocks until all ranks are here; errors are those of comm::Mesh. At least two ranks.
  LibraryGather(const comm::Network& network, int rank, int size);
  LibraryGather(const LibraryGather&) = delete;
  LibraryGather& operator=(const LibraryGather&) = delete;
  ~LibraryGather();

  // Contiguous; this rank's part lies at its place. Collective.
  void all_gather(const Tensor& all);

 private:
  std::unique_ptr<comm::Mesh> mesh_;
};

}  // namespace fsdptrain::tools
