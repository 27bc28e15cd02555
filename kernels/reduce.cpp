#include "kernels/reduce.h"

#include "kernels/cpu/reduce.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

Allocation allocate_partials(const Launch& launch, const ReduceShape& shape, std::int64_t block) {
  const std::int64_t results = shape.outer * shape.inner;
  if (shape.reduced <= block || results == 0) {
    return {};
  }
  const std::int64_t blocks = (shape.reduced + block - 1) / block;
  return launch.allocator->allocate(static_cast<std::size_t>(results * blocks) * sizeof(double),
                                    MemoryCategory::Workspace);
}

void sum(const Launch& launch, const View& out, const View& in, const ReduceShape& shape,
         const SumOptions& options) {
  const Allocation partials =
      allocate_partials(launch, shape, shape.inner == 1 ? kSumBlock : kSumRows);
  run_on(launch, "sum",
         [&]<Isa isa>() { cpu::sum<isa>(launch, out, in, shape, options, partials.data()); });
}

void max(const Launch& launch, const View& out, const View& in, const ReduceShape& shape) {
  run_on(launch, "max", [&]<Isa isa>() { cpu::max<isa>(launch, out, in, shape); });
}

void argmax(const Launch& launch, const View& out, const View& in, const ReduceShape& shape) {
  run_on(launch, "argmax", [&]<Isa isa>() { cpu::argmax<isa>(launch, out, in, shape); });
}

}  // namespace fsdptrain::kernels
