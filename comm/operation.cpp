#include "comm/operation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "comm/error.h"
#include "runtime/base/dtype.h"

namespace fsdptrain::comm {
namespace {

// Which of its tensors an operation needs on this rank.
struct Needs {
  bool input = true;
  bool output = true;
};

Needs needs_of(const Operation& operation, int rank) {
  const bool is_root = operation.root == rank;
  switch (operation.op) {
    case Op::Barrier:
    case Op::CreateGroup:
      return {false, false};
    case Op::Send:
      return {true, false};
    case Op::Recv:
      return {false, true};
    case Op::Gather:
      return {true, is_root};
    case Op::Scatter:
      return {is_root, true};
    case Op::AllGather:
    case Op::ReduceScatter:
    case Op::AllReduce:
    case Op::Broadcast:
    case Op::Reduce:
    case Op::AllToAll:
      return {true, true};
  }
  return {};
}

void check_tensor(std::string_view op, std::string_view which, const Tensor& tensor,
                  Device device) {
  check<StorageError>(tensor.defined(), "{}: {} is undefined on this rank", op, which);
  check<DeviceError>(tensor.device() == device,
                     "{}: {} must be on {}, where this group moves bytes, got {}", op, which,
                     device, tensor.device());
  check<ShapeError>(tensor.is_contiguous(), "{}: {} must be contiguous, got strides {} of {}", op,
                    which, tensor.strides(), tensor.shape());
}

void check_counts(std::string_view op, std::string_view which, const Counts& counts,
                  const Tensor& tensor, int size) {
  check<ShapeError>(counts.size() == static_cast<std::size_t>(size),
                    "{}: there must be one count per rank, got {} for {} ranks", op, counts.size(),
                    size);
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    check<ShapeError>(count >= 0 && !__builtin_add_overflow(sum, count, &sum),
                      "{}: a count of {} elements is none", op, count);
  }
  check<ShapeError>(sum == tensor.numel(), "{}: the counts sum to {}, but {} has {} elements", op,
                    sum, which, tensor.numel());
}

// `whole` has the parts of all ranks, `part` is that of one.
void check_parts(std::string_view op, const Tensor& whole, const Tensor& part, const Counts& counts,
                 const Member& member) {
  if (counts.empty()) {
    std::int64_t numel = 0;
    check<ShapeError>(
        !__builtin_mul_overflow(part.numel(), member.size, &numel) && whole.numel() == numel,
        "{}: {} ranks with {} elements each need {} in all, got {}", op, member.size, part.numel(),
        numel, whole.numel());
    return;
  }
  check_counts(op, "the tensor of all parts", counts, whole, member.size);
  const std::int64_t mine = counts[static_cast<std::size_t>(member.rank)];
  check<ShapeError>(part.numel() == mine, "{}: the count of this rank is {}, but its part has {}",
                    op, mine, part.numel());
}

// Where a contiguous tensor lies, on any device.
struct Place {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

Place place_of(const Tensor& tensor) {
  auto begin = reinterpret_cast<std::uintptr_t>(tensor.view().data);
  // On meta it is where it would lie in its storage.
  if (tensor.device() == Device::meta()) {
    begin = static_cast<std::uintptr_t>(tensor.offset()) * size_of(tensor.dtype());
  }
  return {begin, begin + static_cast<std::uintptr_t>(tensor.numel()) * size_of(tensor.dtype())};
}

bool overlap(const Tensor& a, const Tensor& b) {
  const Place x = place_of(a);
  const Place y = place_of(b);
  if (a.device() == Device::meta() && a.storage() != b.storage()) {
    return false;
  }
  return x.begin < x.end && y.begin < y.end && x.begin < y.end && y.begin < x.end;
}

// `part` lies apart from `whole`, or exactly at its place in it.
void check_place(std::string_view op, const Tensor& whole, const Tensor& part, const Counts& counts,
                 int rank) {
  if (!overlap(whole, part)) {
    return;
  }
  const std::int64_t begin =
      counts.empty() ? part.numel() * rank
                     : std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  const std::uintptr_t place =
      place_of(whole).begin + static_cast<std::uintptr_t>(begin) * size_of(whole.dtype());
  check<MisuseError>(place_of(part).begin == place,
                     "{}: the part of this rank overlaps the whole, but not at element {} where "
                     "it belongs",
                     op, begin);
}

void check_reduction(const Operation& operation) {
  const Reduction& reduction = operation.reduction;
  const bool scales = reduction.op == ReduceOp::Avg || reduction.op == ReduceOp::PremulSum;
  check<DTypeError>(!scales || is_floating(operation.input.dtype()),
                    "{}: {} is for floating dtypes, got {}", name_of(operation.op),
                    name_of(reduction.op), operation.input.dtype());
}

void check_root(const Operation& operation, const Member& member) {
  const std::string_view op = name_of(operation.op);
  const bool is_pairwise = operation.op == Op::Send || operation.op == Op::Recv;
  const bool has_root = operation.op == Op::Broadcast || operation.op == Op::Reduce ||
                        operation.op == Op::Gather || operation.op == Op::Scatter;
  if (is_pairwise || has_root) {
    check<ConfigError>(operation.root >= 0 && operation.root < member.size,
                       "{}: the {} must be a rank of the group, 0 to {}, got {}", op,
                       is_pairwise ? "peer" : "root", member.size - 1, operation.root);
  }
  check<MisuseError>(!is_pairwise || operation.root != member.rank,
                     "{}: rank {} of the group cannot exchange bytes with itself", op, member.rank);
}

}  // namespace

Operation all_gather(const Tensor& output, const Tensor& input, const Tag& tag) {
  return {.op = Op::AllGather, .input = input, .output = output, .tag = tag};
}

Operation all_gatherv(const Tensor& output, const Tensor& input, Counts counts, const Tag& tag) {
  return {.op = Op::AllGather,
          .input = input,
          .output = output,
          .output_counts = std::move(counts),
          .tag = tag};
}

Operation reduce_scatter(const Tensor& output, const Tensor& input, const Reduction& reduction,
                         const Tag& tag) {
  return {.op = Op::ReduceScatter,
          .input = input,
          .output = output,
          .reduction = reduction,
          .tag = tag};
}

Operation reduce_scatterv(const Tensor& output, const Tensor& input, Counts counts,
                          const Reduction& reduction, const Tag& tag) {
  return {.op = Op::ReduceScatter,
          .input = input,
          .output = output,
          .input_counts = std::move(counts),
          .reduction = reduction,
          .tag = tag};
}

Operation all_reduce(const Tensor& tensor, const Reduction& reduction, const Tag& tag) {
  return {
      .op = Op::AllReduce, .input = tensor, .output = tensor, .reduction = reduction, .tag = tag};
}

Operation broadcast(const Tensor& tensor, int root, const Tag& tag) {
  return {.op = Op::Broadcast, .input = tensor, .output = tensor, .root = root, .tag = tag};
}

Operation reduce(const Tensor& tensor, int root, const Reduction& reduction, const Tag& tag) {
  return {.op = Op::Reduce,
          .input = tensor,
          .output = tensor,
          .reduction = reduction,
          .root = root,
          .tag = tag};
}

Operation gather(const Tensor& output, const Tensor& input, int root, const Tag& tag) {
  return {.op = Op::Gather, .input = input, .output = output, .root = root, .tag = tag};
}

Operation scatter(const Tensor& output, const Tensor& input, int root, const Tag& tag) {
  return {.op = Op::Scatter, .input = input, .output = output, .root = root, .tag = tag};
}

Operation all_to_all(const Tensor& output, const Tensor& input, const Tag& tag) {
  return {.op = Op::AllToAll, .input = input, .output = output, .tag = tag};
}

Operation all_to_all(const Tensor& output, Counts output_counts, const Tensor& input,
                     Counts input_counts, const Tag& tag) {
  return {.op = Op::AllToAll,
          .input = input,
          .output = output,
          .input_counts = std::move(input_counts),
          .output_counts = std::move(output_counts),
          .tag = tag};
}

Operation send(const Tensor& tensor, int peer, const Tag& tag) {
  return {.op = Op::Send, .input = tensor, .root = peer, .tag = tag};
}

Operation recv(const Tensor& tensor, int peer, const Tag& tag) {
  return {.op = Op::Recv, .output = tensor, .root = peer, .tag = tag};
}

Operation barrier(const Tag& tag) {
  return {.op = Op::Barrier, .tag = tag};
}

void check_operation(const Operation& operation, const Member& member, Device device) {
  const std::string_view op = name_of(operation.op);
  check_root(operation, member);
  const Needs needs = needs_of(operation, member.rank);
  const Tensor& input = operation.input;
  const Tensor& output = operation.output;
  if (needs.input) {
    check_tensor(op, "the input", input, device);
  }
  if (needs.output) {
    check_tensor(op, "the output", output, device);
  }
  if (needs.input && needs.output) {
    check<DTypeError>(input.dtype() == output.dtype(),
                      "{}: input and output must have one dtype, got {} and {}", op, input.dtype(),
                      output.dtype());
  }
  switch (operation.op) {
    case Op::AllGather:
      check_parts(op, output, input, operation.output_counts, member);
      check_place(op, output, input, operation.output_counts, member.rank);
      return;
    case Op::ReduceScatter:
      check_reduction(operation);
      check_parts(op, input, output, operation.input_counts, member);
      check_place(op, input, output, operation.input_counts, member.rank);
      return;
    case Op::AllReduce:
    case Op::Reduce:
      check_reduction(operation);
      return;
    case Op::Gather:
      if (needs.output) {
        check_parts(op, output, input, {}, member);
        check_place(op, output, input, {}, member.rank);
      }
      return;
    case Op::Scatter:
      if (needs.input) {
        check_parts(op, input, output, {}, member);
        check_place(op, input, output, {}, member.rank);
      }
      return;
    case Op::AllToAll:
      check<ShapeError>(operation.input_counts.empty() == operation.output_counts.empty(),
                        "{}: give the counts of both sides or of none", op);
      if (operation.input_counts.empty()) {
        check<ShapeError>(input.numel() == output.numel() && input.numel() % member.size == 0,
                          "{}: input and output must have one part per rank, got {} and {} "
                          "elements for {} ranks",
                          op, input.numel(), output.numel(), member.size);
      } else {
        check_counts(op, "the input", operation.input_counts, input, member.size);
        check_counts(op, "the output", operation.output_counts, output, member.size);
      }
      check<MisuseError>(!overlap(input, output), "{}: input and output overlap", op);
      return;
    case Op::Broadcast:
    case Op::Send:
    case Op::Recv:
    case Op::Barrier:
    case Op::CreateGroup:
      return;
  }
}

}  // namespace fsdptrain::comm
