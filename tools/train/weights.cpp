#include "tools/train/weights.h"

#include <fmt/format.h>
#include <set>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/base/error.h"
#include "tools/config_print.h"

namespace fsdptrain::tools {
namespace {

const std::string& find_metadata(const checkpoint::SafetensorsReader& reader,
                                 const std::string& key) {
  const auto found = reader.metadata().find(key);
  check<DataError>(found != reader.metadata().end(),
                   "{}: its metadata lack \"{}\": it was not written by fsdptrain train",
                   reader.path().string(), key);
  return found->second;
}

}  // namespace

void save_weights(const std::filesystem::path& path, const nn::FlatParameters& parameters,
                  const WeightsInfo& info) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const auto& parameter : parameters.named()) {
    specs.push_back({parameter.name, parameter.values.dtype(), parameter.values.shape()});
  }
  checkpoint::SafetensorsWriter writer(
      path,
      {{"config", to_toml(info.config)}, {"format", "fsdptrain"}, {"tokenizer", info.tokenizer}},
      specs);
  for (const auto& parameter : parameters.named()) {
    writer.write(parameter.name, parameter.values.bytes());
  }
  writer.commit();
}

WeightsInfo read_weights_info(const std::filesystem::path& path) {
  const checkpoint::SafetensorsReader reader(path);
  return {.config = parse_config(find_metadata(reader, "config"), path.string()),
          .tokenizer = find_metadata(reader, "tokenizer")};
}

void load_weights(const std::filesystem::path& path, nn::FlatParameters& parameters) {
  const checkpoint::SafetensorsReader reader(path);
  std::string problems;
  const auto complain = [&](const std::string& problem) {
    problems += (problems.empty() ? "" : "; ") + problem;
  };
  std::set<std::string> wanted;
  for (const auto& parameter : parameters.named()) {
    wanted.insert(parameter.name);
    if (!reader.contains(parameter.name)) {
      complain(fmt::format("{} is missing", parameter.name));
      continue;
    }
    const auto& entry = reader.find(parameter.name);
    if (entry.shape != parameter.values.shape() || entry.dtype != parameter.values.dtype()) {
      complain(fmt::format("{} is {} {}, not {} {}", parameter.name, entry.dtype, entry.shape,
                           parameter.values.dtype(), parameter.values.shape()));
    }
  }
  for (const auto& entry : reader.entries()) {
    if (!wanted.contains(entry.name)) {
      complain(fmt::format("{} is no parameter of the model", entry.name));
    }
  }
  check<DataError>(problems.empty(), "{}: does not fit the model: {}", path.string(), problems);
  for (const auto& parameter : parameters.named()) {
    reader.read(reader.find(parameter.name), parameter.values.mutable_bytes());
  }
  parameters.bump_epoch();
}

}  // namespace fsdptrain::tools
