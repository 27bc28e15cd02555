#include "checkpoint/load/fit.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdptrain::checkpoint {
namespace {

constexpr std::size_t kShownLines = 20;

// The parameters' own plane goes without its name.
std::string plane_of(const std::string& plane, const std::string& tensor) {
  return plane == kParameters ? tensor : fmt::format("{} of {}", plane, tensor);
}

class Fitting {
 public:
  Fitting(const Manifest& manifest, const StateTensors& tensors, const LoadOptions& options)
      : manifest_(manifest), tensors_(tensors), options_(options) {
    for (const SavedTensor& tensor : manifest.layout.tensors) {
      unused_[tensor.name] = &tensor;
    }
  }

  Fit fit(const std::map<std::string, Stateful*>& objects) {
    for (std::size_t i = 0; i < tensors_.tensors.size(); ++i) {
      fit_tensor(i);
    }
    for (const SavedTensor& tensor : manifest_.layout.tensors) {
      if (unused_.contains(tensor.name)) {
        differ(fmt::format("{} is no parameter of the model", tensor.name));
      }
    }
    if (!options_.parameters_only) {
      fit_objects(objects);
    }
    return std::move(fit_);
  }

 private:
  void differ(std::string line) {
    (options_.allow_differences ? fit_.differences : fit_.misfits).push_back(std::move(line));
  }

  void fit_tensor(std::size_t index) {
    const StateTensor& tensor = tensors_.tensors[index];
    const std::string& name = tensor.part.name;
    const auto found = unused_.find(name);
    if (found == unused_.end()) {
      differ(fmt::format("{} is missing", name));
      return;
    }
    const SavedTensor& saved = *found->second;
    unused_.erase(found);
    if (saved.shape != tensor.part.shape) {
      fit_.misfits.push_back(
          fmt::format("{} has shape {}, not {}", name, saved.shape, tensor.part.shape));
      return;
    }
    const auto& planes = tensors_.groups[tensor.group].planes;
    const std::size_t num_planes = options_.parameters_only ? 1 : planes.size();
    for (std::size_t i = 0; i < num_planes; ++i) {
      fit_plane({.tensor = index, .plane = i, .saved = &saved}, planes[i]);
    }
    if (!options_.parameters_only) {
      fit_unwanted(saved, tensor);
    }
  }

  void fit_plane(Match match, const StatePlane& plane) {
    const SavedPlane* const found =
        find_plane(group_of(manifest_.layout, *match.saved), plane.name);
    const std::string name = plane_of(plane.name, match.saved->name);
    if (found == nullptr) {
      differ(fmt::format("{} is missing", name));
      return;
    }
    match.saved_dtype = found->dtype;
    const DType wanted = plane.values.dtype();
    if (found->dtype != wanted) {
      const bool converts =
          options_.convert_dtypes && is_floating(found->dtype) && is_floating(wanted);
      (converts ? fit_.differences : fit_.misfits)
          .push_back(fmt::format("{} is {}, not {}", name, found->dtype, wanted));
    }
    fit_.matches.push_back(match);
  }

  // What is saved of a parameter and has no place here, and counts of updates.
  void fit_unwanted(const SavedTensor& saved, const StateTensor& tensor) {
    const StateGroup& group = tensors_.groups[tensor.group];
    for (const SavedPlane& plane : group_of(manifest_.layout, saved).planes) {
      if (std::ranges::find(group.planes, plane.name, &StatePlane::name) == group.planes.end()) {
        differ(fmt::format("{} has no place here", plane_of(plane.name, saved.name)));
      }
    }
    const bool is_trained = group.layout->key().trainable();
    if (is_trained != saved.step.has_value()) {
      differ(fmt::format("{} is {} here and was {}", saved.name, is_trained ? "trained" : "frozen",
                         is_trained ? "frozen" : "trained"));
    }
  }

  void fit_objects(const std::map<std::string, Stateful*>& objects) {
    for (const auto& [name, object] : objects) {
      const auto found = manifest_.objects.find(name);
      if (found == manifest_.objects.end()) {
        differ(fmt::format("object {} is missing", name));
        continue;
      }
      const bool is_per_rank = object->kind() == Stateful::Kind::PerRank;
      if (is_per_rank != (found->second.kind == SavedObject::Kind::PerRank)) {
        fit_.misfits.push_back(fmt::format("object {} is {}, not {}", name,
                                           is_per_rank ? "replicated" : "per rank",
                                           is_per_rank ? "per rank" : "replicated"));
        continue;
      }
      fit_.objects.push_back(name);
    }
    for (const auto& [name, object] : manifest_.objects) {
      if (!objects.contains(name)) {
        differ(fmt::format("object {} has no place here", name));
      }
    }
  }

  const Manifest& manifest_;
  const StateTensors& tensors_;
  const LoadOptions& options_;
  std::map<std::string, const SavedTensor*> unused_;
  Fit fit_;
};

}  // namespace

Fit fit(const Manifest& manifest, const StateTensors& tensors,
        const std::map<std::string, Stateful*>& objects, const LoadOptions& options) {
  return Fitting(manifest, tensors, options).fit(objects);
}

std::string shown_lines(const std::vector<std::string>& lines) {
  const std::size_t num_shown = std::min(lines.size(), kShownLines);
  const std::string shown = fmt::format(
      "{}", fmt::join(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(num_shown), "; "));
  return num_shown == lines.size()
             ? shown
             : fmt::format("{}; and {} more", shown, lines.size() - num_shown);
}

}  // namespace fsdptrain::checkpoint
