#include "checkpoint/state/training_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

// What files may be cut at, in elements.
constexpr std::int64_t kPartGranule = 128;

using GroupNumbers = std::map<const shard::BufferLayout*, std::size_t>;

// One group per buffer, in the order of units.
GroupNumbers add_groups(StateTensors& tensors, const shard::ShardedModel& model) {
  GroupNumbers numbers;
  for (const auto& unit : model.units()) {
    const auto buffers = unit->group().buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      numbers[&buffers[i].layout()] = tensors.groups.size();
      tensors.groups.push_back(
          {.name = buffers.size() == 1 ? unit->name() : fmt::format("{} #{}", unit->name(), i),
           .layout = &buffers[i].layout(),
           .planes = {{.name = kParameters, .values = buffers[i].chunk()}}});
    }
  }
  return numbers;
}

void add_plane(StateGroup& group, const std::string& name, const Tensor& values) {
  const bool is_known =
      std::ranges::find(group.planes, name, &StatePlane::name) != group.planes.end();
  check<ConfigError>(!is_known, "state: {} of {} has the name of another state", name, group.name);
  check<ConfigError>(values.numel() == group.layout->chunk_numel(),
                     "state: {} of {} must have the {} elements of its chunk, got {}", name,
                     group.name, group.layout->chunk_numel(), values.numel());
  group.planes.push_back({.name = name, .values = values});
}

// By the number of the chunk that is trained.
std::vector<std::size_t> groups_of_chunks(const StateTensors& tensors) {
  std::vector<std::size_t> groups;
  for (std::size_t i = 0; i < tensors.groups.size(); ++i) {
    if (tensors.groups[i].layout->key().trainable()) {
      groups.push_back(i);
    }
  }
  return groups;
}

void add_states(StateTensors& tensors, const TrainingState& state) {
  const std::vector<std::size_t> groups = groups_of_chunks(tensors);
  if (state.optimizer != nullptr) {
    for (const optim::State& of_chunk : state.optimizer->states()) {
      check<ConfigError>(of_chunk.chunk < groups.size(),
                         "state: {} is of chunk {}, and the model has {}", of_chunk.name,
                         of_chunk.chunk, groups.size());
      add_plane(tensors.groups[groups[of_chunk.chunk]], of_chunk.name, of_chunk.values);
    }
  }
  if (state.average != nullptr) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      add_plane(tensors.groups[groups[i]], kAverage, state.average->values(i));
    }
  }
}

void find_ranks(StateTensors& tensors, const TrainingState& state) {
  tensors.chunk_rank = state.model->ranks().rank();
  tensors.num_chunks = state.model->ranks().size();
  if (state.replicas != nullptr) {
    tensors.replica_rank = state.replicas->rank();
    tensors.num_replicas = state.replicas->size();
  }
  check<ConfigError>(
      tensors.num_chunks == 1 || tensors.num_replicas == 1,
      "state: a model is sharded over all ranks or replicated on each, not both at once, "
      "got one sharded over {} ranks with {} replicas",
      tensors.num_chunks, tensors.num_replicas);
}

}  // namespace

StateTensors tensors_of(const TrainingState& state) {
  check<ConfigError>(state.model != nullptr, "state: there must be a model, got {}", "none");
  StateTensors tensors;
  find_ranks(tensors, state);
  const GroupNumbers numbers = add_groups(tensors, *state.model);
  add_states(tensors, state);
  std::map<std::string, nn::Segment*> segments;
  for (nn::FlatChunk& chunk : state.model->chunks()) {
    for (nn::Segment& segment : chunk.segments) {
      segments[segment.name] = &segment;
    }
  }
  for (shard::ParameterPart& part : shard::parts_of(*state.model)) {
    const auto segment = segments.find(part.name);
    const std::size_t group = numbers.at(part.layout);
    tensors.tensors.push_back({.part = std::move(part),
                               .group = group,
                               .segment = segment == segments.end() ? nullptr : segment->second});
  }
  return tensors;
}

SavedLayout layout_of(const StateTensors& tensors) {
  SavedLayout layout;
  for (const StateGroup& group : tensors.groups) {
    const std::int64_t chunk = group.layout->chunk_numel();
    // Of a replicated model each rank writes a share.
    const std::int64_t granules =
        (chunk + tensors.num_replicas * kPartGranule - 1) / (tensors.num_replicas * kPartGranule);
    SavedGroup saved{.name = group.name,
                     // A group may be of parameters without elements.
                     .part = std::max<std::int64_t>(
                         tensors.num_replicas == 1 ? chunk : granules * kPartGranule, 1),
                     .planes = {}};
    for (const StatePlane& plane : group.planes) {
      saved.planes.push_back({.name = plane.name, .dtype = plane.values.dtype()});
    }
    layout.groups.push_back(std::move(saved));
  }
  for (const StateTensor& tensor : tensors.tensors) {
    layout.tensors.push_back(
        {.name = tensor.part.name,
         .shape = tensor.part.shape,
         .group = static_cast<std::int64_t>(tensor.group),
         .offset = tensor.part.placement.in_buffer.begin,
         .pieces = {},
         .step = tensor.segment == nullptr ? std::nullopt : std::optional(tensor.segment->step)});
  }
  return layout;
}

}  // namespace fsdptrain::checkpoint
