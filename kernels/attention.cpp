#include "kernels/attention.h"

#include "kernels/cpu/attention.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Scratch of `elements` op-math values for each thread.
Allocation allocate_scratch(const Launch& launch, std::int64_t elements, const View& like) {
  const std::size_t each = like.dtype == DType::Float64 ? sizeof(double) : sizeof(float);
  return launch.allocator->allocate(
      static_cast<std::size_t>(launch.pool->threads() * elements) * each,
      MemoryCategory::Workspace);
}

}  // namespace

void attention_forward(const Launch& launch, const AttentionForward& args) {
  const View& q = args.q_BTHD;
  const Allocation scratch = allocate_scratch(
      launch, attention_forward_scratch(round_up(q.sizes[3], attention_pad(launch.isa))), q);
  run_on(launch, "attention",
         [&]<Isa isa>() { cpu::attention_forward<isa>(launch, args, scratch.data()); });
}

void attention_backward(const Launch& launch, const AttentionBackward& args) {
  const View& q = args.q_BTHD;
  const Allocation scratch =
      allocate_scratch(launch,
                       attention_backward_scratch(round_up(args.k_BSHD.sizes[1], kAttentionBlock),
                                                  round_up(q.sizes[3], attention_pad(launch.isa))),
                       q);
  run_on(launch, "attention_backward",
         [&]<Isa isa>() { cpu::attention_backward<isa>(launch, args, scratch.data()); });
}

}  // namespace fsdptrain::kernels
