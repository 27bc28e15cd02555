#include "kernels/embedding.h"

#include "kernels/cpu/embedding.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void embedding(const Launch& launch, const View& out, const View& table, const View& indices,
               const EmbeddingShape& shape) {
  run_on(launch, "embedding", {.writes = {out}, .reads = {table, indices}},
         [=]<Isa isa>(const Launch& cpu) { cpu::embedding<isa>(cpu, out, table, indices, shape); });
}

void embedding_backward(const Launch& launch, const View& dtable, const View& dy,
                        const View& indices, const EmbeddingShape& shape, bool accumulate) {
  // The positions in order of their index, and where each index begins.
  const auto allocate = [shape](const Launch& cpu) {
    const auto entries = static_cast<std::size_t>(shape.positions + shape.rows + 1);
    return cpu.allocator->allocate(entries * sizeof(std::int64_t), MemoryCategory::Workspace);
  };
  run_on(launch, "embedding_backward",
         {.writes = {dtable}, .reads = {dy, indices, {dtable, accumulate}}}, allocate,
         [=]<Isa isa>(const Launch& cpu, const Allocation& order) {
           cpu::embedding_backward<isa>(cpu, dtable, dy, indices, shape, accumulate, order.data());
         });
}

}  // namespace fsdptrain::kernels
