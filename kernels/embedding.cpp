#include "kernels/embedding.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {

void embedding(const Launch& launch, const View& out, const View& table, const View& indices,
               const EmbeddingShape& shape) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(
          launch.isa, [&]<Isa isa>() { cpu::embedding<isa>(launch, out, table, indices, shape); });
    case DeviceType::Cuda:
      cuda::missing("embedding");
    case DeviceType::Meta:
      return;
  }
}

void embedding_backward(const Launch& launch, const View& dtable, const View& dy,
                        const View& indices, const EmbeddingShape& shape, bool accumulate) {
  // The positions in order of their index, and where each index begins.
  const auto entries = static_cast<std::size_t>(shape.positions + shape.rows + 1);
  const Allocation order =
      launch.allocator->allocate(entries * sizeof(std::int64_t), MemoryCategory::Workspace);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::embedding_backward<isa>(launch, dtable, dy, indices, shape, accumulate, order.data());
      });
    case DeviceType::Cuda:
      cuda::missing("embedding_backward");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
