#include "comm/collective/transfer_plan.h"

#include <algorithm>

namespace fsdptrain::comm {
namespace {

// Elements that are dealt out together when an all_reduce is split: a cache line of float32, and
// more of what is wider.
constexpr std::int64_t kBlock = 64;

std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

// The parts of all ranks in a buffer of `numel` elements: those of the counts, or equal ones.
std::vector<Range> parts_of(std::int64_t numel, const Counts& counts, int size) {
  std::vector<Range> parts;
  std::int64_t begin = 0;
  for (int rank = 0; rank < size; ++rank) {
    const std::int64_t part = counts.empty() ? numel / size : counts[index_of(rank)];
    parts.push_back({begin, part});
    begin += part;
  }
  return parts;
}

std::vector<Range> even_parts(std::int64_t numel, int size) {
  std::vector<Range> parts;
  for (int rank = 0; rank < size; ++rank) {
    parts.push_back(even_part(numel, rank, size));
  }
  return parts;
}

class Planner {
 public:
  Planner(const Operation& operation, const Member& member)
      : operation_(operation), member_(member), is_root_(operation.root == member.rank) {}

  // Nothing to read and nothing to give.
  Phase empty() const {
    Phase phase;
    phase.exports.resize(index_of(member_.size));
    phase.imports.resize(index_of(member_.size));
    return phase;
  }

  Phase all_gather() const {
    const std::vector<Range> parts =
        parts_of(operation_.output.numel(), operation_.output_counts, member_.size);
    Phase phase = give_all_to_all_others({0, operation_.input.numel()});
    phase.imports = parts;
    keep_own(phase, {0, operation_.input.numel()}, parts[index_of(member_.rank)].begin);
    return phase;
  }

  // Rank i reads and combines part i of every input, into its output from `target` on.
  Phase reduce_scatter(const std::vector<Range>& parts, std::int64_t target) const {
    Phase phase = empty();
    phase.reduces = true;
    phase.exports = parts;
    const Range own = parts[index_of(member_.rank)];
    std::ranges::fill(phase.imports, Range{target, own.numel});
    keep_own(phase, own, target);
    return phase;
  }

  // Everyone reads the parts that the others have completed in their outputs.
  Phase gather_parts(const std::vector<Range>& parts) const {
    Phase phase = give_all_to_all_others(parts[index_of(member_.rank)]);
    phase.exports_output = true;
    phase.imports = parts;
    phase.imports[index_of(member_.rank)] = {};
    return phase;
  }

  Phase broadcast() const {
    const Range all{0, operation_.output.numel()};
    Phase phase = is_root_ ? give_all_to_all_others(all) : empty();
    if (!is_root_) {
      phase.imports[index_of(operation_.root)] = all;
    }
    return phase;
  }

  Phase reduce() const {
    const Range all{0, operation_.input.numel()};
    Phase phase = empty();
    phase.reduces = is_root_;
    if (is_root_) {
      std::ranges::fill(phase.imports, all);
      keep_own(phase, all, 0);
    } else {
      phase.exports[index_of(operation_.root)] = all;
    }
    return phase;
  }

  Phase gather() const {
    const Range all{0, operation_.input.numel()};
    Phase phase = empty();
    if (is_root_) {
      phase.imports = parts_of(operation_.output.numel(), {}, member_.size);
      keep_own(phase, all, phase.imports[index_of(member_.rank)].begin);
    } else {
      phase.exports[index_of(operation_.root)] = all;
    }
    return phase;
  }

  Phase scatter() const {
    Phase phase = empty();
    if (is_root_) {
      phase.exports = parts_of(operation_.input.numel(), {}, member_.size);
      keep_own(phase, phase.exports[index_of(member_.rank)], 0);
    } else {
      phase.imports[index_of(operation_.root)] = {0, operation_.output.numel()};
    }
    return phase;
  }

  Phase all_to_all() const {
    Phase phase = empty();
    phase.exports = parts_of(operation_.input.numel(), operation_.input_counts, member_.size);
    phase.imports = parts_of(operation_.output.numel(), operation_.output_counts, member_.size);
    keep_own(phase, phase.exports[index_of(member_.rank)],
             phase.imports[index_of(member_.rank)].begin);
    return phase;
  }

  Phase send() const {
    Phase phase = empty();
    phase.exports[index_of(operation_.root)] = {0, operation_.input.numel()};
    return phase;
  }

  Phase recv() const {
    Phase phase = empty();
    phase.imports[index_of(operation_.root)] = {0, operation_.output.numel()};
    return phase;
  }

 private:
  Phase give_all_to_all_others(const Range& all) const {
    Phase phase = empty();
    std::ranges::fill(phase.exports, all);
    phase.exports[index_of(member_.rank)] = {};
    return phase;
  }

  // This rank's own part goes its own way.
  void keep_own(Phase& phase, const Range& own, std::int64_t target) const {
    phase.own = own;
    phase.own_target = target;
    phase.exports[index_of(member_.rank)] = {};
    phase.imports[index_of(member_.rank)] = {};
  }

  const Operation& operation_;
  Member member_;
  bool is_root_;
};

}  // namespace

Range even_part(std::int64_t numel, int index, int size) {
  const std::int64_t blocks = (numel + kBlock - 1) / kBlock;
  // No product of large numbers: the first `blocks % size` parts have one block more.
  const auto begin_of = [&](std::int64_t part) {
    const std::int64_t block = blocks / size * part + std::min(part, blocks % size);
    return std::min(numel, block * kBlock);
  };
  const std::int64_t begin = begin_of(index);
  return {begin, begin_of(index + 1) - begin};
}

std::vector<Phase> plan_transfer(const Operation& operation, const Member& member) {
  const Planner plan(operation, member);
  switch (operation.op) {
    case Op::AllGather:
      return {plan.all_gather()};
    case Op::ReduceScatter:
      return {plan.reduce_scatter(
          parts_of(operation.input.numel(), operation.input_counts, member.size), 0)};
    case Op::AllReduce: {
      const std::vector<Range> parts = even_parts(operation.input.numel(), member.size);
      return {plan.reduce_scatter(parts, parts[index_of(member.rank)].begin),
              plan.gather_parts(parts)};
    }
    case Op::Broadcast:
      return {plan.broadcast()};
    case Op::Reduce:
      return {plan.reduce()};
    case Op::Gather:
      return {plan.gather()};
    case Op::Scatter:
      return {plan.scatter()};
    case Op::AllToAll:
      return {plan.all_to_all()};
    case Op::Send:
      return {plan.send()};
    case Op::Recv:
      return {plan.recv()};
    case Op::Barrier:
    case Op::CreateGroup:
      return {plan.empty()};
  }
  return {};
}

}  // namespace fsdptrain::comm
