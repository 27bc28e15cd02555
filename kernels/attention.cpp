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

// Room for the ranges of documents; none where there are no documents.
Allocation allocate_ranges(const Launch& launch, const AttentionMask& mask) {
  if (!mask.has_documents) {
    return {};
  }
  const View& ids = mask.document_ids_BT;
  return launch.allocator->allocate(
      static_cast<std::size_t>(ids.sizes[0] * document_blocks(ids.sizes[1])) *
          sizeof(DocumentRange),
      MemoryCategory::Workspace);
}

DocumentRange* ranges_in(const Allocation& ranges) {
  return reinterpret_cast<DocumentRange*>(ranges.data());
}

}  // namespace

void attention_forward(const Launch& launch, const AttentionForward& args) {
  const View& q = args.q_BTHD;
  const Allocation scratch = allocate_scratch(
      launch, attention_forward_scratch(round_up(q.sizes[3], attention_pad(launch.isa))), q);
  const Allocation ranges = allocate_ranges(launch, args.mask);
  run_on(launch, "attention", [&]<Isa isa>() {
    cpu::attention_forward<isa>(launch, args, ranges_in(ranges), scratch.data());
  });
}

void attention_backward(const Launch& launch, const AttentionBackward& args) {
  const View& q = args.q_BTHD;
  const Allocation scratch =
      allocate_scratch(launch,
                       attention_backward_scratch(round_up(args.k_BSGD.sizes[1], kAttentionBlock),
                                                  round_up(q.sizes[3], attention_pad(launch.isa))),
                       q);
  const Allocation ranges = allocate_ranges(launch, args.mask);
  run_on(launch, "attention_backward", [&]<Isa isa>() {
    cpu::attention_backward<isa>(launch, args, ranges_in(ranges), scratch.data());
  });
}

}  // namespace fsdptrain::kernels
