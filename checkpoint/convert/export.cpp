#include "checkpoint/convert/export.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "checkpoint/convert/parts.h"
#include "checkpoint/safetensors/file.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/ops/cast.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::checkpoint {
namespace {

struct Exporting {
  const SavedTensor* tensor = nullptr;
  SavedPlane plane;
  TensorSpec spec;

  std::uint64_t nbytes() const {
    return static_cast<std::uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
  }
};

void check_plane(const SavedLayout& layout, const std::string& wanted) {
  std::set<std::string> planes;
  for (const SavedGroup& group : layout.groups) {
    for (const SavedPlane& plane : group.planes) {
      planes.insert(plane.name);
    }
  }
  check<ConfigError>(planes.contains(wanted), "the checkpoint has no '{}': give one of {}", wanted,
                     fmt::join(planes, ", "));
}

std::vector<Exporting> tensors_of(const CheckpointReader& source, const ExportOptions& options) {
  check_plane(source.manifest().layout, options.plane);
  std::vector<Exporting> tensors;
  for (const SavedTensor& tensor : source.manifest().layout.tensors) {
    const SavedGroup& group = group_of(source.manifest().layout, tensor);
    const SavedPlane* plane = find_plane(group, options.plane);
    if (plane == nullptr) {
      plane = find_plane(group, kParameters);
    }
    const DType dtype =
        is_floating(plane->dtype) ? options.dtype.value_or(plane->dtype) : plane->dtype;
    tensors.push_back({.tensor = &tensor,
                       .plane = *plane,
                       .spec = {.name = tensor.name, .dtype = dtype, .shape = tensor.shape}});
  }
  return tensors;
}

// In the order of the model, as many as fit.
std::vector<std::vector<Exporting>> share_out(std::vector<Exporting> tensors,
                                              std::optional<std::uint64_t> max_nbytes) {
  std::vector<std::vector<Exporting>> files(1);
  std::uint64_t nbytes = 0;
  for (Exporting& tensor : tensors) {
    if (max_nbytes && !files.back().empty() && nbytes + tensor.nbytes() > *max_nbytes) {
      files.emplace_back();
      nbytes = 0;
    }
    nbytes += tensor.nbytes();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

// As it is to be written.
Tensor read_whole(CheckpointReader& source, const Exporting& tensor,
                  const std::function<void(std::uint64_t nbytes)>& each) {
  const std::int64_t numel = tensor.spec.shape.numel();
  const Tensor values =
      Tensor::empty(tensor.spec.shape, tensor.plane.dtype, Device::cpu(), MemoryCategory::Data);
  std::span<std::byte> rest = values.mutable_bytes();
  Parts parts(source, *tensor.tensor, tensor.plane);
  for (std::int64_t begin = 0; begin < numel; begin += Parts::kElements) {
    const std::span<const std::byte> part =
        parts.read({begin, std::min(begin + Parts::kElements, numel)});
    std::copy(part.begin(), part.end(), rest.begin());
    rest = rest.subspan(part.size());
    each(part.size());
  }
  return ops::cast(values, tensor.spec.dtype);
}

void write_file(CheckpointReader& source, const std::filesystem::path& path,
                const std::vector<Exporting>& tensors,
                const std::map<std::string, std::string>& metadata,
                const std::function<void(std::uint64_t nbytes)>& each) {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const Exporting& tensor : tensors) {
    specs.push_back(tensor.spec);
  }
  SafetensorsWriter writer(path, metadata, specs);
  for (const Exporting& tensor : tensors) {
    writer.write(tensor.spec.name, read_whole(source, tensor, each).bytes());
  }
  writer.commit();
}

std::filesystem::path write_index(const std::filesystem::path& folder,
                                  const std::vector<std::vector<Exporting>>& files,
                                  const std::vector<std::string>& names) {
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const Exporting& tensor : files[i]) {
      weight_map[tensor.spec.name] = names[i];
      total += tensor.nbytes();
    }
  }
  const nlohmann::ordered_json index{{"metadata", {{"total_size", total}}},
                                     {"weight_map", weight_map}};
  const std::string text = index.dump(2) + "\n";
  AtomicFile file(folder / "model.safetensors.index.json");
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit();
  return file.path();
}

}  // namespace

std::uint64_t export_nbytes(const CheckpointReader& source, const ExportOptions& options) {
  std::uint64_t nbytes = 0;
  for (const Exporting& tensor : tensors_of(source, options)) {
    nbytes += static_cast<std::uint64_t>(tensor.spec.shape.numel()) * size_of(tensor.plane.dtype);
  }
  return nbytes;
}

Exported export_model(CheckpointReader& source, const std::filesystem::path& output,
                      const ExportOptions& options,
                      const std::function<void(std::uint64_t nbytes)>& each) {
  const auto files = share_out(tensors_of(source, options), options.max_file_nbytes);
  Exported exported;
  for (const std::vector<Exporting>& file : files) {
    for (const Exporting& tensor : file) {
      exported.nbytes += tensor.nbytes();
    }
  }
  if (!options.max_file_nbytes) {
    write_file(source, output, files.front(), options.metadata, each);
    exported.files.push_back(output);
    return exported;
  }
  make_folders(output);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < files.size(); ++i) {
    names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size()));
    write_file(source, output / names.back(), files[i], options.metadata, each);
    exported.files.push_back(output / names.back());
  }
  exported.files.push_back(write_index(output, files, names));
  return exported;
}

}  // namespace fsdptrain::checkpoint
