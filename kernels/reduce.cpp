#include "kernels/reduce.h"

#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {
namespace {

std::int64_t num_blocks(std::int64_t count, std::int64_t block) {
  return count <= block ? 1 : (count + block - 1) / block;
}

// Partial sums are at most 8 bytes wide; one block needs none.
Allocation allocate_partials(const Launch& launch, std::int64_t results, std::int64_t blocks) {
  if (blocks == 1 || results == 0) {
    return {};
  }
  return launch.allocator->allocate(static_cast<std::size_t>(results * blocks) * sizeof(double),
                                    MemoryCategory::Workspace);
}

}  // namespace

void sum(const Launch& launch, const View& out, const View& in, const ReduceShape& shape,
         const SumOptions& options) {
  const std::int64_t blocks = num_blocks(shape.reduced, shape.inner == 1 ? kSumBlock : kSumRows);
  const Allocation partials = allocate_partials(launch, shape.outer * shape.inner, blocks);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::sum<isa>(launch, out, in, shape, options, partials.data());
      });
    case DeviceType::Cuda:
      cuda::missing("sum");
    case DeviceType::Meta:
      return;
  }
}

void sum_of_squares(const Launch& launch, const View& out, const View& in) {
  std::int64_t numel = 1;
  for (int dim = 0; dim < in.dims; ++dim) {
    numel *= in.sizes[dim];
  }
  const Allocation partials = allocate_partials(launch, 1, num_blocks(numel, kSumBlock));
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::sum_of_squares<isa>(launch, out, in, partials.data());
      });
    case DeviceType::Cuda:
      cuda::missing("sum_of_squares");
    case DeviceType::Meta:
      return;
  }
}

void max(const Launch& launch, const View& out, const View& in, const ReduceShape& shape) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::max<isa>(launch, out, in, shape); });
    case DeviceType::Cuda:
      cuda::missing("max");
    case DeviceType::Meta:
      return;
  }
}

void argmax(const Launch& launch, const View& out, const View& in, const ReduceShape& shape) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() { cpu::argmax<isa>(launch, out, in, shape); });
    case DeviceType::Cuda:
      cuda::missing("argmax");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
