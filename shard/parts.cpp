#include "shard/parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/link/link.h"
#include "kernels/copy.h"
#include "shard/sharded_model.h"

namespace fsdptrain::shard {
namespace {

Tensor part_of(const Tensor& flat, const Range& range) {
  return flat.alias({range.size()}, Strides::contiguous({range.size()}),
                    flat.offset() + range.begin);
}

// Has each of `ranks` send its part to the root, which puts them together.
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

// On the root.
Tensor receive(const ParameterPart& part, const Tensor& own, comm::ProcessGroup& ranks) {
  const std::int64_t numel = part.shape.numel();
  const Tensor flat = ranks.allocate({numel}, own.dtype());
  const int first = part.layout->owner_of(part.placement, 0).rank;
  const int last = part.layout->owner_of(part.placement, numel - 1).rank;
  Transfers transfers(ranks);
  for (int rank = first; rank <= last; ++rank) {
    const Range range = part.layout->local_range(part.placement, rank).in_parameter;
    const Tensor place = part_of(flat, range);
    if (rank == ranks.rank()) {
      kernels::copy(place.launch(), place.view(), own.view());
    } else if (range.size() > 0) {
      transfers.add(comm::recv(place, rank));
    }
  }
  transfers.carry_out();
  return flat.alias(part.shape, Strides::contiguous(part.shape), flat.offset());
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
                 comm::ProcessGroup& ranks) {
  const Tensor own = part.values_in(like_chunk);
  const bool has_all = own.numel() == part.shape.numel();
  if (ranks.rank() == root) {
    return has_all ? own.alias(part.shape, Strides::contiguous(part.shape), own.offset())
                   : receive(part, own, ranks);
  }
  if (own.numel() > 0) {
    ranks.batch({comm::send(own, root)}).wait();
  }
  return {};
}

}  // namespace fsdptrain::shard
