#include "checkpoint/save/opening.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <optional>
#include <set>

#include "checkpoint/format/blocks/digest.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

using Json = nlohmann::json;

std::string digest_text(const std::string& text) {
  return to_string(digest_of(std::as_bytes(std::span(text))));
}

std::string digest_of_places(const SavedLayout& layout) {
  std::string text;
  for (const SavedGroup& group : layout.groups) {
    text += fmt::format("{} {}\n", group.name, group.part);
    for (const SavedPlane& plane : group.planes) {
      text += fmt::format("{} {}\n", plane.name, plane.dtype);
    }
  }
  for (const SavedTensor& tensor : layout.tensors) {
    text += fmt::format("{} {} {} {}\n", tensor.name, tensor.shape, tensor.group, tensor.offset);
  }
  return digest_text(text);
}

void check_same(std::span<const Opening> openings) {
  std::set<std::int64_t> files;
  for (std::size_t rank = 0; rank < openings.size(); ++rank) {
    const Opening& opening = openings[rank];
    check<IoError>(opening.error.empty(), "step {} was not saved: rank {}: {}", openings[0].step,
                   rank, opening.error);
    check<ConfigError>(opening.step == openings[0].step,
                       "checkpoint: all ranks save one step, and rank 0 saves {} and rank {} {}",
                       openings[0].step, rank, opening.step);
    check<ConfigError>(opening.layout_digest == openings[0].layout_digest,
                       "checkpoint: rank {} has other tensors, or in other places, than rank 0",
                       rank);
    const bool is_in_range =
        opening.file >= 0 && opening.file < static_cast<std::int64_t>(openings.size());
    check<ConfigError>(is_in_range && files.insert(opening.file).second,
                       "checkpoint: {} ranks save a file each, and rank {} has the part of file "
                       "{}: the model's ranks and replicas must be those of the world",
                       openings.size(), rank, opening.file);
    for (const auto& [name, digest] : opening.digests) {
      const auto first = openings[0].digests.find(name);
      check<ConfigError>(first != openings[0].digests.end() && first->second == digest,
                         "checkpoint: object {} is replicated, and rank {} has another state than "
                         "rank 0: make it alike, or an object per rank",
                         name, rank);
    }
  }
}

SavedObject object_of(const std::string& name, const Stateful& object,
                      std::span<const Opening> openings, const Json& own) {
  if (object.kind() == Stateful::Kind::Replicated) {
    return {.kind = SavedObject::Kind::Replicated, .values = {own}};
  }
  SavedObject saved{.kind = SavedObject::Kind::PerRank, .values = {}};
  for (std::size_t rank = 0; rank < openings.size(); ++rank) {
    const auto found = openings[rank].objects.find(name);
    check<ConfigError>(found != openings[rank].objects.end(),
                       "checkpoint: rank {} has no object {}", rank, name);
    saved.values.push_back(found->second);
  }
  return saved;
}

}  // namespace

Opening opening_of(const TrainingState& state, const StateTensors& tensors,
                   const SavedLayout& layout, std::int64_t step) {
  Opening opening{.attempt = {},
                  .error = {},
                  .step = step,
                  .file = tensors.file(),
                  .layout_digest = digest_of_places(layout),
                  .steps = {},
                  .objects = {},
                  .digests = {}};
  for (std::size_t i = 0; tensors.replica_rank == 0 && i < tensors.tensors.size(); ++i) {
    if (tensors.tensors[i].segment != nullptr) {
      opening.steps.emplace_back(i, tensors.tensors[i].segment->step);
    }
  }
  for (const auto& [name, object] : state.objects) {
    Json value = object->state();
    if (object->kind() == Stateful::Kind::Replicated) {
      opening.digests[name] = digest_text(value.dump());
    }
    opening.objects[name] = std::move(value);
  }
  return opening;
}

std::string to_text(const Opening& opening) {
  Json per_rank = Json::object();
  for (const auto& [name, value] : opening.objects) {
    if (!opening.digests.contains(name)) {
      per_rank[name] = value;
    }
  }
  return Json{
      {"attempt", opening.attempt}, {"error", printable(opening.error)}, {"step", opening.step},
      {"file", opening.file},       {"layout", opening.layout_digest},   {"steps", opening.steps},
      {"objects", per_rank},        {"digests", opening.digests}}
      .dump();
}

Opening parse_opening(const std::string& text) {
  const Json json = Json::parse(text);
  return {.attempt = json.at("attempt"),
          .error = json.at("error"),
          .step = json.at("step"),
          .file = json.at("file"),
          .layout_digest = json.at("layout"),
          .steps = json.at("steps"),
          .objects = json.at("objects").get<std::map<std::string, Json>>(),
          .digests = json.at("digests").get<std::map<std::string, std::string>>()};
}

Manifest agree(std::span<const Opening> openings, const Opening& mine, const TrainingState& state,
               SavedLayout layout) {
  check_same(openings);
  for (const Opening& opening : openings) {
    for (const auto& [tensor, step] : opening.steps) {
      std::optional<std::int64_t>& known = layout.tensors[static_cast<std::size_t>(tensor)].step;
      const std::string& name = layout.tensors[static_cast<std::size_t>(tensor)].name;
      check<ConfigError>(!known || *known == step,
                         "checkpoint: {} has {} updates on one rank and {} on another", name,
                         known.value_or(0), step);
      known = step;
    }
  }
  Manifest manifest{
      .step = openings[0].step,
      .attempt = openings[0].attempt,
      .num_ranks = static_cast<std::int64_t>(openings.size()),
      .created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
      .writer = {},
      .files = {},
      .layout = std::move(layout),
      .objects = {}};
  for (const auto& [name, object] : state.objects) {
    manifest.objects[name] = object_of(name, *object, openings, mine.objects.at(name));
  }
  return manifest;
}

}  // namespace fsdptrain::checkpoint
