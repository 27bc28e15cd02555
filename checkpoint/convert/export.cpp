#include "checkpoint/convert/export.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "checkpoint/safetensors.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/ops/cast.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::checkpoint {
namespace {

constexpr std::int64_t kPartElements = std::int64_t{1} << 20;

struct Exporting {
  std::size_t tensor = 0;
  std::size_t plane = 0;
  // As in the checkpoint.
  DType dtype = DType::Float32;
  TensorSpec spec;

  std::uint64_t nbytes() const {
    return static_cast<std::uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
  }
};

std::size_t index_of(const SavedGroup& group, const std::string& plane) {
  const auto found = std::find_if(group.planes.begin(), group.planes.end(),
                                  [&](const SavedPlane& one) { return one.name == plane; });
  return static_cast<std::size_t>(found - group.planes.begin());
}

std::vector<Exporting> tensors_of(const SavedLayout& layout, const ExportOptions& options) {
  std::set<std::string> planes;
  for (const SavedGroup& group : layout.groups) {
    for (const SavedPlane& plane : group.planes) {
      planes.insert(plane.name);
    }
  }
  check<ConfigError>(planes.contains(options.plane), "the checkpoint has no '{}': give one of {}",
                     options.plane, fmt::join(planes, ", "));
  std::vector<Exporting> tensors;
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const SavedTensor& tensor = layout.tensors[i];
    const SavedGroup& group = layout.groups[static_cast<std::size_t>(tensor.group)];
    std::size_t plane = index_of(group, options.plane);
    if (plane == group.planes.size()) {
      plane = index_of(group, kParameters);
    }
    const DType dtype = group.planes[plane].dtype;
    tensors.push_back({.tensor = i,
                       .plane = plane,
                       .dtype = dtype,
                       .spec = {.name = tensor.name,
                                .dtype = is_floating(dtype) ? options.dtype.value_or(dtype) : dtype,
                                .shape = tensor.shape}});
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

Tensor read_whole(CheckpointReader& source, const Exporting& tensor,
                  const std::function<void(std::uint64_t nbytes)>& each) {
  const std::int64_t numel = tensor.spec.shape.numel();
  const Tensor values = Tensor::empty(tensor.spec.shape, tensor.dtype, Device::cpu(), MemoryCategory::Data);
  const std::span<std::byte> bytes = values.mutable_bytes();
  const std::size_t element = size_of(tensor.dtype);
  for (std::int64_t begin = 0; begin < numel; begin += kPartElements) {
    const kernels::Range range{begin, std::min(begin + kPartElements, numel)};
    const auto nbytes = static_cast<std::size_t>(range.size()) * element;
    source.read(tensor.tensor, tensor.plane, range,
                bytes.subspan(static_cast<std::size_t>(begin) * element, nbytes));
    each(nbytes);
  }
  return values;
}

void write_file(CheckpointReader& source, const std::filesystem::path& path,
                const std::vector<Exporting>& tensors,
                const std::map<std::string, std::string>& metadata,
                const std::function<void(std::uint64_t nbytes)>& each) {
  std::vector<TensorSpec> specs;
  for (const Exporting& tensor : tensors) {
    specs.push_back(tensor.spec);
  }
  SafetensorsWriter writer(path, metadata, specs);
  for (const Exporting& tensor : tensors) {
    const Tensor values = read_whole(source, tensor, each);
    writer.write(tensor.spec.name, (tensor.dtype == tensor.spec.dtype ? values : ops::cast(values, tensor.spec.dtype)).bytes());
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

Exported export_model(CheckpointReader& source, const std::filesystem::path& output,
                      const ExportOptions& options,
                      const std::function<void(std::uint64_t nbytes)>& each) {
  const auto files = share_out(tensors_of(source.manifest().layout, options), options.max_file_nbytes);
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
