#include "kernels/embedding.h"

#include "kernels/cpu/embedding.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void embedding(const Launch& launch, const View& out, const View& table, const View& indices,
               const EmbeddingShape& shape) {
  run_on(launch, "embedding",
         [&]<Isa isa>() { cpu::embedding<isa>(launch, out, table, indices, shape); });
}

void embedding_backward(const Launch& launch, const View& dtable, const View& dy,
                        const View& indices, const EmbeddingShape& shape, bool accumulate) {
  // The positions in order of their index, and where each index begins.
  const auto entries = static_cast<std::size_t>(shape.positions + shape.rows + 1);
  const Allocation order =
      launch.allocator->allocate(entries * sizeof(std::int64_t), MemoryCategory::Workspace);
  run_on(launch, "embedding_backward", [&]<Isa isa>() {
    cpu::embedding_backward<isa>(launch, dtable, dy, indices, shape, accumulate, order.data());
  });
}

}  // namespace fsdptrain::kernels
