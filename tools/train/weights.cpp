#include "tools/train/weights.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "checkpoint/safetensors.h"
#include "kernels/copy.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "runtime/tensor/transfer.h"
#include "tools/config_print.h"
#include "tools/train/non_finite.h"

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

constexpr const char* kNone = "none";

std::uint32_t find_number(const checkpoint::SafetensorsReader& reader, const std::string& key) {
  const std::string& text = find_metadata(reader, key);
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  check<DataError>(error == std::errc() && rest == end,
                   "{}: \"{}\" of its metadata must be a whole number of 32 bits, got {}",
                   reader.path().string(), key, in_quotes(text));
  return number;
}

bool is_readable(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16;
}

constexpr std::size_t kShownProblems = 20;

// What keeps a file from being loaded, joined by "; ".
std::string misfits(const checkpoint::SafetensorsReader& reader,
                    const std::vector<nn::FlatParameters::Named>& parameters) {
  std::vector<std::string> problems;
  std::set<std::string> wanted;
  for (const auto& [name, values, gradient] : parameters) {
    wanted.insert(name);
    if (!reader.contains(name)) {
      problems.push_back(fmt::format("{} is missing", name));
      continue;
    }
    const auto& entry = reader.find(name);
    if (entry.shape != values.shape() || !is_readable(entry.dtype)) {
      problems.push_back(fmt::format("{} is {} {}, not {} {}", name, entry.dtype, entry.shape,
                                     values.dtype(), values.shape()));
    }
  }
  for (const auto& entry : reader.entries()) {
    if (!wanted.contains(entry.name)) {
      problems.push_back(fmt::format("{} is no parameter of the model", entry.name));
    }
  }
  const std::size_t more = problems.size() - std::min(problems.size(), kShownProblems);
  problems.resize(problems.size() - more);
  return fmt::format("{}{}", fmt::join(problems, "; "),
                     more == 0 ? "" : fmt::format("; and {} more", more));
}

// As the dtype of `values`, which are on the host.
void read_values(const checkpoint::SafetensorsReader& reader, const checkpoint::TensorEntry& entry,
                 const Tensor& values) {
  if (entry.dtype == values.dtype()) {
    reader.read(entry, values.mutable_bytes());
    return;
  }
  const Tensor stored =
      Tensor::empty(entry.shape, entry.dtype, Device::cpu(), MemoryCategory::Workspace);
  reader.read(entry, stored.mutable_bytes());
  kernels::copy(stored.launch(), values.view(), stored.view());
  values.storage()->bump_version();
}

}  // namespace

void save_weights(const std::filesystem::path& path,
                  const std::vector<nn::FlatParameters::Named>& parameters,
                  const WeightsInfo& info) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const auto& parameter : parameters) {
    specs.push_back({parameter.name, parameter.values.dtype(), parameter.values.shape()});
  }
  const std::optional<std::uint32_t>& end = info.vocabulary.end_of_document;
  checkpoint::SafetensorsWriter writer(path,
                                       {{"config", to_toml(info.config)},
                                        {"end_of_document", end ? fmt::to_string(*end) : kNone},
                                        {"format", "fsdptrain"},
                                        {"tokenizer", info.vocabulary.tokenizer},
                                        {"vocab_size", fmt::to_string(info.vocabulary.size)}},
                                       specs);
  for (const auto& parameter : parameters) {
    writer.write(parameter.name, to_device(parameter.values, Device::cpu()).bytes());
  }
  writer.commit();
}

WeightsInfo read_weights_info(const std::filesystem::path& path) {
  const checkpoint::SafetensorsReader reader(path);
  WeightsInfo info{.config = parse_config(find_metadata(reader, "config"), path.string()),
                   .vocabulary = {.size = find_number(reader, "vocab_size"),
                                  .end_of_document = std::nullopt,
                                  .tokenizer = find_metadata(reader, "tokenizer")}};
  if (find_metadata(reader, "end_of_document") != kNone) {
    info.vocabulary.end_of_document = find_number(reader, "end_of_document");
  }
  data::check_vocabulary(path.string(), info.vocabulary);
  return info;
}

void load_weights(const std::filesystem::path& path, nn::FlatParameters& parameters) {
  const checkpoint::SafetensorsReader reader(path);
  const std::string problems = misfits(reader, parameters.named());
  check<DataError>(problems.empty(), "{}: does not fit the model: {}", path.string(), problems);
  for (const auto& parameter : parameters.named()) {
    const Tensor& values = parameter.values;
    const bool on_host = values.device() == Device::cpu();
    const Tensor host = on_host ? values : pinned(values.shape(), values.dtype(), values.device());
    read_values(reader, reader.find(parameter.name), host);
    if (!on_host) {
      copy_async(values, host);
    }
  }
  parameters.bump_epoch();
  const std::string bad = non_finite_parameter(parameters);
  check<DataError>(bad.empty(),
                   "{}: {} holds a value that is not finite: the file is damaged, or the training "
                   "that made it went wrong: give other weights",
                   path.string(), bad);
}

}  // namespace fsdptrain::tools
