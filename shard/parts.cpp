#include "shard/parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/link/link.h"
#include "kernels/copy.h"
#include "runtime/base/error.h"
#include "shard/sharded_model.h"

namespace fsdptrain::shard {
namespace {

Tensor part_of(const Tensor& flat, const Range& range) {
  return flat.alias({range.size()}, Strides::contiguous({range.size()}),
                    flat.offset() + range.begin);
}

// Sends and receives of one rank, as many at once as there may be.
class Transfers {
 public:
  explicit Transfers(comm::ProcessGroup& ranks) : ranks_(ranks) {}

  void add(comm::Operation operation) {
    operations_.push_back(std::move(operation));
    if (operations_.size() == comm::Link::kMaxOpen) {
      carry_out();
    }
  }
  void carry_out() {
    if (!operations_.empty()) {
      ranks_.batch(std::exchange(operations_, {})).wait();
    }
  }

 private:
  comm::ProcessGroup& ranks_;
  std::vector<comm::Operation> operations_;
};

Tensor as_whole(const ParameterPart& part, const Tensor& flat) {
  return flat.alias(part.shape, Strides::contiguous(part.shape), flat.offset());
}

Tensor room_or_memory(const ParameterPart& part, DType dtype, comm::ProcessGroup& ranks,
                      const Tensor& room) {
  return room.defined() ? room : ranks.allocate({part.shape.numel()}, dtype);
}

// What each rank has of a parameter with elements, in their order; `visit` takes a rank and
// elements of the parameter.
template <class Visit>
void visit_parts(const ParameterPart& part, const Visit& visit) {
  const int first = part.layout->owner_of(part.placement, 0).rank;
  const int last = part.layout->owner_of(part.placement, part.shape.numel() - 1).rank;
  for (int rank = first; rank <= last; ++rank) {
    const Range range = part.layout->local_range(part.placement, rank).in_parameter;
    if (range.size() > 0) {
      visit(rank, range);
    }
  }
}

// On the root.
Tensor receive(const ParameterPart& part, const Tensor& own, comm::ProcessGroup& ranks,
               const Tensor& room) {
  const Tensor flat = room_or_memory(part, own.dtype(), ranks, room);
  Transfers transfers(ranks);
  visit_parts(part, [&](int rank, const Range& range) {
    const Tensor place = part_of(flat, range);
    if (rank == ranks.rank()) {
      kernels::copy(place.launch(), place.view(), own.view());
    } else {
      transfers.add(comm::recv(place, rank));
    }
  });
  transfers.carry_out();
  return as_whole(part, flat);
}

// On the root.
void give_out(const ParameterPart& part, const Tensor& whole, const Tensor& own,
              comm::ProcessGroup& ranks) {
  check<ShapeError>(whole.defined() && whole.shape() == part.shape && whole.is_contiguous(),
                    "scatter: {} must be contiguous, of shape {}, got {}", part.name, part.shape,
                    whole.shape());
  check<DTypeError>(whole.dtype() == own.dtype(), "scatter: {} must be {}, got {}", part.name,
                    own.dtype(), whole.dtype());
  const Shape numel{whole.numel()};
  const Tensor flat = whole.alias(numel, Strides::contiguous(numel), whole.offset());
  Transfers transfers(ranks);
  visit_parts(part, [&](int rank, const Range& range) {
    const Tensor place = part_of(flat, range);
    if (rank == ranks.rank()) {
      kernels::copy(own.launch(), own.view(), place.view());
    } else {
      transfers.add(comm::send(place, rank));
    }
  });
  transfers.carry_out();
}

}  // namespace

Tensor ParameterPart::values_in(const Tensor& like_chunk) const {
  return part_of(like_chunk, local.in_chunk);
}

std::vector<ParameterPart> parts_of(const ShardedModel& model) {
  std::map<std::string, ParameterPart> by_name;
  std::size_t num_chunks = 0;
  for (const auto& unit : model.units()) {
    const ParamGroup& group = unit->group();
    for (const FlatBuffer& buffer : group.buffers()) {
      const auto number = buffer.trainable() ? std::optional(num_chunks++) : std::nullopt;
      for (const Placement& placement : buffer.layout().placements()) {
        const nn::Parameter& parameter = group.parameters()[placement.parameter];
        by_name[parameter.name] = {.name = parameter.name,
                                   .shape = parameter.tensor->shape(),
                                   .layout = &buffer.layout(),
                                   .placement = placement,
                                   .local = buffer.layout().local_range(placement, buffer.rank()),
                                   .chunk = buffer.chunk(),
                                   .chunk_number = number};
      }
    }
  }
  std::vector<ParameterPart> parts;
  for (const nn::Parameter& parameter : model.parameters()) {
    if (auto found = by_name.extract(parameter.name)) {
      parts.push_back(std::move(found.mapped()));
    }
  }
  return parts;
}

Tensor gather_to(int root, const ParameterPart& part, const Tensor& like_chunk,
                 comm::ProcessGroup& ranks, const Tensor& room) {
  const Tensor own = part.values_in(like_chunk);
  const bool has_all = own.numel() == part.shape.numel();
  if (ranks.rank() == root) {
    return has_all ? as_whole(part, own) : receive(part, own, ranks, room);
  }
  if (own.numel() > 0) {
    ranks.batch({comm::send(own, root)}).wait();
  }
  return {};
}

Tensor gather_to_all(const ParameterPart& part, const Tensor& like_chunk, comm::ProcessGroup& ranks,
                     const Tensor& room) {
  const Tensor own = part.values_in(like_chunk);
  if (ranks.size() == 1 || part.shape.numel() == 0) {
    return as_whole(part, own);
  }
  comm::Counts counts(static_cast<std::size_t>(ranks.size()));
  visit_parts(part, [&](int rank, const Range& range) {
    counts[static_cast<std::size_t>(rank)] = range.size();
  });
  const Tensor flat = room_or_memory(part, own.dtype(), ranks, room);
  ranks.issue(comm::all_gatherv(flat, own, std::move(counts))).wait();
  return as_whole(part, flat);
}

void scatter_from(int root, const ParameterPart& part, const Tensor& whole,
                  const Tensor& like_chunk, comm::ProcessGroup& ranks) {
  if (part.shape.numel() == 0) {
    return;
  }
  const Tensor own = part.values_in(like_chunk);
  if (ranks.rank() == root) {
    give_out(part, whole, own, ranks);
  } else if (own.numel() > 0) {
    ranks.batch({comm::recv(own, root)}).wait();
  }
  if (own.numel() > 0) {
    own.storage()->bump_version();
  }
}

}  // namespace fsdptrain::shard
