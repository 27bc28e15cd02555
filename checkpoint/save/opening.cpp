#include "checkpoint/save/opening.h"

#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/format/blocks/digest.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "runtime/base/utc.h"

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

const char* kind_name(const Opening& opening, const std::string& name) {
  return opening.digests.contains(name) ? "replicated" : "per rank";
}

std::set<std::string> names_of(const Opening& opening) {
  std::set<std::string> names;
  for (const auto& [name, digest] : opening.digests) {
    names.insert(name);
  }
  for (const auto& [name, value] : opening.objects) {
    names.insert(name);
  }
  return names;
}

// In both directions: which there are, of which kind, and the states of those that are replicated.
void check_same_objects(const Opening& first, const Opening& opening, std::size_t rank) {
  const std::set<std::string> expected = names_of(first);
  const std::set<std::string> names = names_of(opening);
  for (const std::string& name : expected) {
    check<ConfigError>(names.contains(name),
                       "checkpoint: rank 0 has an object {}, and rank {} has {}", name, rank,
                       "none of that name");
  }
  for (const std::string& name : names) {
    check<ConfigError>(expected.contains(name),
                       "checkpoint: rank {} has an object {}, and rank 0 has none of that name",
                       rank, name);
    const char* const kind = kind_name(first, name);
    check<ConfigError>(std::string_view(kind) == kind_name(opening, name),
                       "checkpoint: object {} is {} on rank 0, and {} on rank {}", name, kind,
                       kind_name(opening, name), rank);
  }
  for (const auto& [name, digest] : opening.digests) {
    check<ConfigError>(first.digests.at(name) == digest,
                       "checkpoint: object {} is replicated, and rank {} has another state than "
                       "rank 0: make it alike, or an object per rank",
                       name, rank);
  }
}

// Why JSON cannot hold it; empty where it can.
std::string problem_of(const Json& value) {
  const Json leaves = value.flatten();
  for (const auto& [place, leaf] : leaves.items()) {
    const std::string where = place.empty() ? "" : fmt::format("at {} ", printable(place));
    if (leaf.is_number_float() && !std::isfinite(leaf.get<double>())) {
      return fmt::format("{}is {}, which JSON has no value for", where, leaf.get<double>());
    }
    if (leaf.is_binary() || leaf.is_discarded()) {
      return where + "is no value of JSON";
    }
  }
  try {
    static_cast<void>(value.dump());
  } catch (const Json::exception&) {
    return "has text that is not UTF-8";
  }
  return {};
}

void add_object(Opening& opening, const std::string& name, const Stateful& object) {
  Json value = object.state();
  const std::string of_name = problem_of(name);
  const std::string problem = of_name.empty() ? problem_of(value) : of_name;
  if (!problem.empty()) {
    opening.refusal = fmt::format("object {} {}", printable(name), problem);
    return;
  }
  if (object.kind() == Stateful::Kind::Replicated) {
    opening.digests[name] = digest_text(value.dump());
  }
  opening.objects[name] = std::move(value);
}

void check_same(std::span<const Opening> openings) {
  std::set<std::int64_t> files;
  for (std::size_t rank = 0; rank < openings.size(); ++rank) {
    const Opening& opening = openings[rank];
    check<IoError>(opening.error.empty(), "step {} was not saved: rank {}: {}", openings[0].step,
                   rank, opening.error);
    check<ConfigError>(opening.refusal.empty(), "checkpoint: rank {}: {}", rank, opening.refusal);
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
    check_same_objects(openings[0], opening, rank);
  }
}

SavedObject object_of(const std::string& name, const Stateful& object,
                      std::span<const Opening> openings, const Json& own) {
  if (object.kind() == Stateful::Kind::Replicated) {
    return {.kind = SavedObject::Kind::Replicated, .values = {own}};
  }
  SavedObject saved{.kind = SavedObject::Kind::PerRank, .values = {}};
  for (const Opening& opening : openings) {
    saved.values.push_back(opening.objects.at(name));
  }
  return saved;
}

}  // namespace

Opening opening_of(const TrainingState& state, const StateTensors& tensors,
                   const SavedLayout& layout, std::int64_t step) {
  Opening opening{.attempt = {},
                  .error = {},
                  .refusal = {},
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
    add_object(opening, name, *object);
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
  return Json{{"refusal", opening.refusal},
              {"attempt", opening.attempt},
              {"error", printable(opening.error)},
              {"step", opening.step},
              {"file", opening.file},
              {"layout", opening.layout_digest},
              {"steps", opening.steps},
              {"objects", per_rank},
              {"digests", opening.digests}}
      .dump();
}

Opening parse_opening(const std::string& text) {
  const Json json = Json::parse(text);
  return {.attempt = json.at("attempt"),
          .error = json.at("error"),
          .refusal = json.at("refusal"),
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
  Manifest manifest{.step = openings[0].step,
                    .attempt = openings[0].attempt,
                    .num_ranks = static_cast<std::int64_t>(openings.size()),
                    .created = now_utc(),
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
