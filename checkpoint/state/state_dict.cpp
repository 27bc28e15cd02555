#include "checkpoint/state/state_dict.h"

#include <fmt/format.h>
#include <utility>

#include "checkpoint/format/blocks/digest.h"

namespace fsdptrain::checkpoint {

bool StatePlanes::has(std::string_view plane) const {
  if (plane == kParameters) {
    return parameters;
  }
  return plane == kAverage ? average : optimizer;
}

std::vector<StateItem> items_of(const StateTensors& tensors, const StatePlanes& planes) {
  std::vector<StateItem> items;
  for (std::size_t i = 0; i < tensors.tensors.size(); ++i) {
    const StateTensor& tensor = tensors.tensors[i];
    const StateGroup& group = tensors.groups[tensor.group];
    for (const StatePlane& plane : group.planes) {
      if (planes.has(plane.name)) {
        items.push_back(
            {.entry = {.plane = plane.name,
                       .name = tensor.part.name,
                       .shape = tensor.part.shape,
                       .dtype = plane.values.dtype(),
                       .trained = group.layout->key().trainable(),
                       .updates = tensor.segment == nullptr ? std::nullopt
                                                            : std::optional(tensor.segment->step)},
             .tensor = i,
             .like_chunk = plane.values});
      }
    }
  }
  return items;
}

std::string digest_of_entries(std::span<const StateItem> items) {
  std::string text;
  for (const StateItem& item : items) {
    text += fmt::format("{} {} {} {}\n", item.entry.plane, item.entry.name, item.entry.dtype,
                        item.entry.shape);
  }
  return to_string(digest_of(text));
}

std::vector<ShardedEntry> sharded_state(const TrainingState& state, const StatePlanes& planes) {
  const StateTensors tensors = tensors_of(state);
  std::vector<ShardedEntry> entries;
  for (StateItem& item : items_of(tensors, planes)) {
    const shard::ParameterPart& part = tensors.tensors[item.tensor].part;
    entries.push_back({.entry = std::move(item.entry),
                       .elements = part.local.in_parameter,
                       .values = part.values_in(item.like_chunk)});
  }
  return entries;
}

}  // namespace fsdptrain::checkpoint
