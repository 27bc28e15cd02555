#include "tools/bench/library_gather.h"

#include <gloo/allgather.h>

namespace fsdptrain::tools {

LibraryGather::LibraryGather(const comm::Network& network, int rank, int size)
    : mesh_(std::make_unique<comm::Mesh>(
          comm::make_device(network.address), network.rendezvous,
          comm::Mesh::Options{
              .rank = rank, .size = size, .name = "library", .timeout = network.timeout})) {}

LibraryGather::~LibraryGather() = default;

void LibraryGather::all_gather(const Tensor& all) {
  ::gloo::AllgatherOptions options(mesh_->context());
  options.setOutput(all.mutable_values<float>().data(), static_cast<std::size_t>(all.numel()));
  ::gloo::allgather(options);
}

}  // namespace fsdptrain::tools
