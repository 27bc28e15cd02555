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
  const auto allocate = [shape](const Launch& cpu) {
    return allocate_partials(cpu, shape, shape.inner == 1 ? kSumBlock : kSumRows);
  };
  run_on(launch, "sum", {.writes = {out}, .reads = {in, {out, options.accumulate}}}, allocate,
         [=]<Isa isa>(const Launch& cpu, const Allocation& partials) {
           cpu::sum<isa>(cpu, out, in, shape, options, partials.data());
         });
}

void max(const Launch& launch, const View& out, const View& in, const ReduceShape& shape) {
  run_on(launch, "max", {.writes = {out}, .reads = {in}},
         [=]<Isa isa>(const Launch& cpu) { cpu::max<isa>(cpu, out, in, shape); });
}

void argmax(const Launch& launch, const View& out, const View& in, const ReduceShape& shape) {
  run_on(launch, "argmax", {.writes = {out}, .reads = {in}},
         [=]<Isa isa>(const Launch& cpu) { cpu::argmax<isa>(cpu, out, in, shape); });
}

}  // namespace fsdptrain::kernels
