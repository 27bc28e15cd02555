#include "kernels/attention.h"

#include "kernels/cuda/missing.h"
#include "kernels/workspace.h"

namespace fsdptrain::kernels {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::size_t op_math_bytes(const View& view) {
  return view.dtype == DType::Float64 ? sizeof(double) : sizeof(float);
}

// Scratch for `slots` threads with `elements` values each.
Allocation allocate_slots(const Launch& launch, std::int64_t slots, std::int64_t elements,
                          const View& like) {
  return launch.allocator->allocate(
      static_cast<std::size_t>(slots * elements) * op_math_bytes(like), MemoryCategory::Workspace);
}

}  // namespace

void attention_forward(const Launch& launch, const AttentionForward& args) {
  const View& q = args.q_BTHD;
  const std::int64_t query_blocks = round_up(q.sizes[1], kAttentionBlock) / kAttentionBlock;
  const std::int64_t slots = workspace_slots(launch, q.sizes[0] * q.sizes[2] * query_blocks);
  const Allocation workspace = allocate_slots(
      launch, slots, attention_forward_scratch(round_up(q.sizes[3], kAttentionPad)), q);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::attention_forward<isa>(launch, args, workspace.data(), slots);
      });
    case DeviceType::Cuda:
      cuda::missing("attention");
    case DeviceType::Meta:
      return;
  }
}

void attention_backward(const Launch& launch, const AttentionBackward& args) {
  const View& q = args.q_BTHD;
  const std::int64_t slots = workspace_slots(launch, q.sizes[0] * q.sizes[2]);
  const Allocation workspace = allocate_slots(
      launch, slots,
      attention_backward_scratch(round_up(args.k_BSHD.sizes[1], kAttentionBlock),
                                 round_up(q.sizes[3], kAttentionPad)),
      q);
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::attention_backward<isa>(launch, args, workspace.data(), slots);
      });
    case DeviceType::Cuda:
      cuda::missing("attention");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
