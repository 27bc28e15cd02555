#include "kernels/reduce.h"

#include "kernels/cuda/missing.h"

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
  const Allocation partials = allocate_partials(launch, {.reduced = numel}, kSumBlock);
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
