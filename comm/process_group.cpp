#include "comm/process_group.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <utility>

#include "comm/error.h"
#include "comm/fnv.h"

namespace fsdptrain::comm {
namespace {

std::uint64_t hash_of(const Counts& counts) {
  if (counts.empty()) {
    return 0;
  }
  Fnv hash;
  for (const std::int64_t count : counts) {
    hash.add(static_cast<std::uint64_t>(count));
  }
  return hash.value();
}

// The tensor that has the shape of one rank's part.
const Tensor& part_of(const Operation& operation) {
  const bool by_output =
      operation.op == Op::ReduceScatter || operation.op == Op::Scatter || operation.op == Op::Recv;
  return by_output ? operation.output : operation.input;
}

void copy_text(std::string_view text, std::array<char, sizeof(Frame::note)>& to) {
  std::ranges::copy(text.substr(0, to.size() - 1), to.begin());
}

bool is_pairwise(Op op) {
  return op == Op::Send || op == Op::Recv;
}

Frame frame_of(const Operation& operation) {
  Frame frame;
  frame.op = operation.op;
  frame.reduce_op = operation.reduction.op;
  frame.factor = operation.reduction.factor;
  frame.tag = operation.tag;
  const Tensor& part = part_of(operation);
  if (part.defined()) {
    frame.dtype = part.dtype();
    frame.dims = static_cast<std::uint8_t>(part.dims());
    std::ranges::copy(part.shape(), frame.sizes.begin());
  }
  const bool is_uneven = !operation.input_counts.empty() || !operation.output_counts.empty();
  if (is_uneven && frame.dims > 0) {
    frame.sizes[0] = -1;
  }
  // Counts of an all_to_all differ from rank to rank; each pair compares its own.
  if (operation.op != Op::AllToAll) {
    frame.parts_hash =
        hash_of(operation.input_counts.empty() ? operation.output_counts : operation.input_counts);
  }
  return frame;
}

}  // namespace

std::uint64_t group_hash(const std::string& name, const std::vector<int>& ranks,
                         std::uint64_t generation) {
  Fnv hash;
  hash.add(generation);
  hash.add(ranks.size());
  for (const int rank : ranks) {
    hash.add(static_cast<std::uint64_t>(rank));
  }
  hash.add(name);
  return hash.value();
}

ProcessGroup::ProcessGroup(Carrier& carrier, Members members, Options options)
    : carrier_(carrier),
      members_(std::make_shared<const Members>(std::move(members))),
      options_(std::move(options)),
      hash_(group_hash(options_.name, members_->ranks, options_.generation)) {
  // All members agree on the group before anything else runs in it.
  carrier_.check_usable();
  carrier_.issue({make_call({.op = Op::CreateGroup}, SourceLocation::current())}, options_.timeout)
      .wait();
}

Call ProcessGroup::make_call(Operation operation, SourceLocation where) {
  Frame frame = frame_of(operation);
  const bool is_pair = is_pairwise(operation.op);
  if (operation.root >= 0 && !is_pair) {
    frame.root = members_->ranks[static_cast<std::size_t>(operation.root)];
  }
  frame.group_hash = hash_;
  frame.group_name = GroupName(options_.name);
  // Only some members take part in a send.
  frame.group_sequence = is_pair ? 0 : sequence_++;
  copy_text(note_of(operation, where), frame.note);
  return {members_, std::move(operation), frame};
}

std::string ProcessGroup::note_of(const Operation& operation, SourceLocation where) const {
  if (operation.op == Op::CreateGroup) {
    return fmt::format("members {}", fmt::join(members_->ranks, ","));
  }
  std::vector<std::string> notes;
  if (options_.names != nullptr) {
    if (const std::string_view name = options_.names->find(operation.tag); !name.empty()) {
      notes.push_back(fmt::format("for {}", name));
    }
  }
  if (options_.checks) {
    notes.push_back(fmt::format("called at {}", to_string(where)));
  }
  for (const Counts* counts : {&operation.input_counts, &operation.output_counts}) {
    if (!counts->empty()) {
      notes.push_back(fmt::format("counts {}", fmt::join(*counts, ",")));
    }
  }
  return fmt::format("{}", fmt::join(notes, ", "));
}

std::vector<Operation> ProcessGroup::checked(std::vector<Operation> operations) const {
  // Before any of them is numbered: peers count the same.
  check<MisuseError>(operations.size() <= Link::kMaxOpen,
                     "rank {}: a batch has at most {} operations, got {}", carrier_.rank(),
                     Link::kMaxOpen, operations.size());
  for (const Operation& operation : operations) {
    check_operation(operation, members_->member(), carrier_.device());
  }
  // Of two opposite transfers between a pair, both sides number the one from the lower rank first.
  std::ranges::stable_sort(operations, {}, [this](const Operation& operation) {
    return is_pairwise(operation.op) && (operation.op == Op::Recv) == (rank() < operation.root) ? 1
                                                                                                : 0;
  });
  return operations;
}

void ProcessGroup::compare_first(const std::vector<Operation>& operations, SourceLocation where) {
  std::vector<Call> calls;
  for (const Operation& operation : operations) {
    // On the CPU the two ranks of a transfer compare it as they carry it out.
    const bool compares_itself = is_pairwise(operation.op) && carrier_.device() == Device::cpu();
    if (operation.op != Op::Barrier && !compares_itself) {
      calls.push_back(make_call(operation, where));
    }
  }
  if (!calls.empty()) {
    carrier_.meet(std::move(calls), options_.timeout);
  }
}

Work ProcessGroup::issue_all(std::vector<Operation> operations, SourceLocation where) {
  carrier_.check_usable();
  operations = checked(std::move(operations));
  if (options_.checks) {
    compare_first(operations, where);
  }
  std::vector<Call> calls;
  calls.reserve(operations.size());
  for (Operation& operation : operations) {
    calls.push_back(make_call(std::move(operation), where));
  }
  return carrier_.issue(std::move(calls), options_.timeout);
}

Work ProcessGroup::issue(const Operation& operation, SourceLocation where) {
  return issue_all({operation}, where);
}

Work ProcessGroup::batch(std::vector<Operation> operations, SourceLocation where) {
  check<MisuseError>(!operations.empty(), "batch: there is no operation in it");
  return issue_all(std::move(operations), where);
}

void ProcessGroup::monitored_barrier(Nanoseconds timeout, SourceLocation where) {
  carrier_.check_usable();
  carrier_.meet({make_call(barrier(), where)}, timeout);
}

Tensor ProcessGroup::allocate(const Shape& shape, DType dtype) const {
  return allocate(shape, dtype, false);
}

Tensor ProcessGroup::allocate_symmetric(const Shape& shape, DType dtype) const {
  return allocate(shape, dtype, true);
}

Tensor ProcessGroup::allocate(const Shape& shape, DType dtype, bool is_symmetric) const {
  const auto nbytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return Tensor::over(carrier_.allocate(hash_, nbytes, is_symmetric), dtype, shape,
                      Strides::contiguous(shape), 0);
}

void ProcessGroup::abort(std::string_view reason) const noexcept {
  carrier_.abort(reason);
}

}  // namespace fsdptrain::comm
