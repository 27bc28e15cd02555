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

struct Workspace {
  Allocation scratch;
  Allocation ranges;

  DocumentRange* document_ranges() const { return reinterpret_cast<DocumentRange*>(ranges.data()); }
};

Operand documents_of(const AttentionMask& mask) {
  return {mask.document_ids_BT, mask.has_documents};
}

}  // namespace

void attention_forward(const Launch& launch, const AttentionForward& args) {
  const auto allocate = [args](const Launch& cpu) -> Workspace {
    const std::int64_t head_size = round_up(args.q_BTHD.sizes[3], attention_pad(cpu.isa));
    return {allocate_scratch(cpu, attention_forward_scratch(head_size), args.q_BTHD),
            allocate_ranges(cpu, args.mask)};
  };
  run_on(launch, "attention",
         {.writes = {args.out_BTHD, args.log_sum_exp_BHT},
          .reads = {args.q_BTHD, args.k_BSGD, args.v_BSGD, documents_of(args.mask)}},
         allocate, [args]<Isa isa>(const Launch& cpu, const Workspace& workspace) {
           cpu::attention_forward<isa>(cpu, args, workspace.document_ranges(),
                                       workspace.scratch.data());
         });
}

void attention_backward(const Launch& launch, const AttentionBackward& args) {
  const auto allocate = [args](const Launch& cpu) -> Workspace {
    const std::int64_t keys = round_up(args.k_BSGD.sizes[1], kAttentionBlock);
    const std::int64_t head_size = round_up(args.q_BTHD.sizes[3], attention_pad(cpu.isa));
    return {allocate_scratch(cpu, attention_backward_scratch(keys, head_size), args.q_BTHD),
            allocate_ranges(cpu, args.mask)};
  };
  run_on(launch, "attention_backward",
         {.writes = {args.dq_BTHD, args.dk_BSGD, args.dv_BSGD},
          .reads = {args.dout_BTHD, args.q_BTHD, args.k_BSGD, args.v_BSGD, args.out_BTHD,
                    args.log_sum_exp_BHT, documents_of(args.mask)}},
         allocate, [args]<Isa isa>(const Launch& cpu, const Workspace& workspace) {
           cpu::attention_backward<isa>(cpu, args, workspace.document_ranges(),
                                        workspace.scratch.data());
         });
}

}  // namespace fsdptrain::kernels
