#include "tools/checkpoint/describe.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <vector>

#include "checkpoint/format/blocks/digest.h"
#include "tools/plan/byte_size.h"

namespace fsdptrain::tools {

using checkpoint::Manifest;
using checkpoint::SavedGroup;
using checkpoint::SavedObject;
using checkpoint::SavedTensor;
using Json = nlohmann::ordered_json;

namespace {

std::string kind_of(const SavedObject& object) {
  return object.kind == SavedObject::Kind::Replicated ? "replicated" : "per rank";
}

// Of all groups: "parameters float32", and where groups differ how many have it.
std::vector<std::string> planes_of(const Manifest& manifest) {
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  std::vector<std::pair<std::string, std::string>> order;
  for (const SavedGroup& group : manifest.layout.groups) {
    for (const checkpoint::SavedPlane& plane : group.planes) {
      const std::pair key{plane.name, std::string(name_of(plane.dtype))};
      if (counts[key]++ == 0) {
        order.push_back(key);
      }
    }
  }
  std::vector<std::string> texts;
  for (const auto& key : order) {
    const bool in_all = counts[key] == manifest.layout.groups.size();
    texts.push_back(fmt::format(
        "{} {}{}", key.first, key.second,
        in_all ? ""
               : fmt::format(" ({} of {} groups)", counts[key], manifest.layout.groups.size())));
  }
  return texts;
}

// "12" where all have been updated as often, else "0 to 12".
std::string updates_of(const Manifest& manifest) {
  std::set<std::int64_t> counts;
  for (const SavedTensor& tensor : manifest.layout.tensors) {
    if (tensor.step) {
      counts.insert(*tensor.step);
    }
  }
  if (counts.empty()) {
    return "none";
  }
  return counts.size() == 1 ? fmt::format("{}", *counts.begin())
                            : fmt::format("{} to {}", *counts.begin(), *counts.rbegin());
}

std::string table_of_tensors(const Manifest& manifest) {
  std::size_t width = 4;
  for (const SavedTensor& tensor : manifest.layout.tensors) {
    width = std::max(width, tensor.name.size());
  }
  std::string text = fmt::format("\n{:<{}}  {:<10}  {:>14}  {:<7}  {}\n", "name", width, "dtype",
                                 "elements", "updates", "shape");
  for (const SavedTensor& tensor : manifest.layout.tensors) {
    const SavedGroup& group = checkpoint::group_of(manifest.layout, tensor);
    text += fmt::format("{:<{}}  {:<10}  {:>14}  {:<7}  {}\n", tensor.name, width,
                        name_of(group.planes.front().dtype), tensor.shape.numel(),
                        tensor.step ? fmt::format("{}", *tensor.step) : "frozen", tensor.shape);
  }
  return text;
}

Json json_of(const SavedTensor& tensor) {
  Json json{{"name", tensor.name},
            {"shape", Json(std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end()))},
            {"group", tensor.group}};
  if (tensor.pieces.empty()) {
    json["offset"] = tensor.offset;
  } else {
    json["pieces"] = tensor.pieces.size();
  }
  json["updates"] = tensor.step ? Json(*tensor.step) : Json();
  return json;
}

Json json_of(const SavedGroup& group) {
  Json planes = Json::array();
  for (const checkpoint::SavedPlane& plane : group.planes) {
    planes.push_back({{"name", plane.name}, {"dtype", name_of(plane.dtype)}});
  }
  return {{"name", group.name}, {"elements_per_file", group.part}, {"planes", planes}};
}

}  // namespace

ManifestTotals totals_of(const Manifest& manifest) {
  ManifestTotals totals;
  for (const SavedTensor& tensor : manifest.layout.tensors) {
    totals.num_elements += tensor.shape.numel();
  }
  for (const checkpoint::SavedFile& file : manifest.files) {
    totals.nbytes += file.facts.nbytes;
  }
  return totals;
}

std::string describe(const std::filesystem::path& path, const Manifest& manifest, bool all) {
  const ManifestTotals totals = totals_of(manifest);
  std::vector<std::string> objects;
  for (const auto& [name, object] : manifest.objects) {
    objects.push_back(fmt::format("{} ({})", name, kind_of(object)));
  }
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<12} {}\n", name, value);
  };
  line("checkpoint", path.string());
  line("step", fmt::format("{}", manifest.step));
  line("created", manifest.created);
  line("by", manifest.writer);
  line("attempt", manifest.attempt);
  line("ranks", fmt::format("{}", manifest.num_ranks));
  line("files", fmt::format("{}, {}", manifest.files.size(),
                            size_text(static_cast<std::int64_t>(totals.nbytes))));
  line("tensors",
       fmt::format("{} in {} groups, {:.2f} M elements", manifest.layout.tensors.size(),
                   manifest.layout.groups.size(), static_cast<double>(totals.num_elements) * 1e-6));
  line("planes", fmt::format("{}", fmt::join(planes_of(manifest), ", ")));
  line("updates", updates_of(manifest));
  line("objects", objects.empty() ? "none" : fmt::format("{}", fmt::join(objects, ", ")));
  return all ? text + table_of_tensors(manifest) : text;
}

Json to_json(const std::filesystem::path& path, const Manifest& manifest) {
  Json files = Json::array();
  for (const checkpoint::SavedFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"nbytes", file.facts.nbytes},
                     {"digest", checkpoint::to_string(file.facts.digest)}});
  }
  Json groups = Json::array();
  for (const SavedGroup& group : manifest.layout.groups) {
    groups.push_back(json_of(group));
  }
  Json tensors = Json::array();
  for (const SavedTensor& tensor : manifest.layout.tensors) {
    tensors.push_back(json_of(tensor));
  }
  Json objects = Json::object();
  for (const auto& [name, object] : manifest.objects) {
    objects[name] = {{"kind", kind_of(object)}, {"values", object.values}};
  }
  return {{"path", path.string()},
          {"step", manifest.step},
          {"attempt", manifest.attempt},
          {"created", manifest.created},
          {"by", manifest.writer},
          {"ranks", manifest.num_ranks},
          {"files", files},
          {"groups", groups},
          {"tensors", tensors},
          {"objects", objects}};
}

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fsdptrain::tools
