#include "tools/train/weights.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "checkpoint/safetensors/file.h"
#include "checkpoint/state/agreement.h"
#include "checkpoint/state/full_state.h"
#include "kernels/copy.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "runtime/tensor/transfer.h"
#include "shard/parts.h"
#include "tools/config/print.h"
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
                    const std::vector<shard::ParameterPart>& parameters) {
  std::vector<std::string> problems;
  std::set<std::string> wanted;
  for (const shard::ParameterPart& parameter : parameters) {
    const std::string& name = parameter.name;
    wanted.insert(name);
    if (!reader.contains(name)) {
      problems.push_back(fmt::format("{} is missing", name));
      continue;
    }
    const auto& entry = reader.find(name);
    if (entry.shape != parameter.shape || !is_readable(entry.dtype)) {
      problems.push_back(fmt::format("{} is {} {}, not {} {}", name, entry.dtype, entry.shape,
                                     parameter.dtype(), parameter.shape));
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

// Elements from `begin` on, as the dtype of `values`, which are on the host.
void read_values(const checkpoint::SafetensorsReader& reader, const checkpoint::TensorEntry& entry,
                 std::int64_t begin, const Tensor& values) {
  const std::uint64_t offset = static_cast<std::uint64_t>(begin) * size_of(entry.dtype);
  if (entry.dtype == values.dtype()) {
    reader.read_part(entry, offset, values.mutable_bytes());
    return;
  }
  const Tensor stored =
      Tensor::empty(values.shape(), entry.dtype, Device::cpu(), MemoryCategory::Workspace);
  reader.read_part(entry, offset, stored.mutable_bytes());
  kernels::copy(stored.launch(), values.view(), stored.view());
  values.storage()->bump_version();
}

// What rank 0 writes to.
std::unique_ptr<checkpoint::SafetensorsWriter> make_writer(
    const std::filesystem::path& path, const std::vector<shard::ParameterPart>& parts,
    const WeightsInfo& info) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const shard::ParameterPart& part : parts) {
    specs.push_back({part.name, part.dtype(), part.shape});
  }
  return std::make_unique<checkpoint::SafetensorsWriter>(path, weights_metadata(info), specs);
}

}  // namespace

std::map<std::string, std::string> weights_metadata(const WeightsInfo& info) {
  const std::optional<std::uint32_t>& end = info.vocabulary.end_of_document;
  return {{"config", to_toml(info.config)},
          {"end_of_document", end ? fmt::to_string(*end) : kNone},
          {"format", "fsdptrain"},
          {"tokenizer", info.vocabulary.tokenizer},
          {"vocab_size", fmt::to_string(info.vocabulary.size)}};
}

void save_weights(const std::optional<std::filesystem::path>& path, comm::World& world,
                  shard::ShardedModel& model, const WeightsInfo& info,
                  optim::WeightAverage* average) {
  std::unique_ptr<checkpoint::SafetensorsWriter> writer;
  // What it throws all ranks do.
  const auto write = [&](const checkpoint::StateEntry& entry, const Tensor& values) {
    if (!path) {
      return;
    }
    if (!writer) {
      writer = make_writer(*path, shard::parts_of(model), info);
    }
    writer->write(entry.name, to_device(values, Device::cpu()).bytes());
  };
  // What is not trained has no average.
  const auto is_weight = [average](const checkpoint::StateEntry& entry) {
    const bool has_average = average != nullptr && entry.trained;
    return (entry.plane == checkpoint::kAverage) == has_average;
  };
  checkpoint::stream_full_state(world, {.model = &model, .average = average}, write,
                                {.wants = is_weight});
  checkpoint::agree_on(world, [&writer] {
    if (writer) {
      writer->commit();
    }
    return std::string();
  });
}

void save_run_weights(const RunFolder* folder, comm::World& world, TrainingRank& rank,
                      const data::Vocabulary& vocabulary) {
  const WeightsInfo info{.config = rank.config(), .vocabulary = vocabulary};
  using Path = std::optional<std::filesystem::path>;
  checkpoint::agree_on(world, [folder] {
    if (folder != nullptr) {
      folder->check_held();
    }
    return std::string();
  });
  std::exception_ptr failure;
  const auto save = [&](const Path& path, optim::WeightAverage* average) {
    try {
      save_weights(path, world, rank.sharded(), info, average);
    } catch (const std::exception&) {
      failure = failure ? failure : std::current_exception();
    }
  };
  save(folder == nullptr ? Path() : folder->weights(), nullptr);
  if (rank.average() != nullptr) {
    save(folder == nullptr ? Path() : folder->average_weights(), rank.average());
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
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

void load_weights(const std::filesystem::path& path, shard::ShardedModel& model) {
  const checkpoint::SafetensorsReader reader(path);
  const std::vector<shard::ParameterPart> parts = shard::parts_of(model);
  const std::string problems = misfits(reader, parts);
  check<DataError>(problems.empty(), "{}: does not fit the model: {}", path.string(), problems);
  for (const shard::ParameterPart& part : parts) {
    const Tensor values = part.values();
    if (values.numel() == 0) {
      continue;
    }
    const bool on_host = values.device() == Device::cpu();
    const Tensor host = on_host ? values : pinned(values.shape(), values.dtype(), values.device());
    read_values(reader, reader.find(part.name), part.local.in_parameter.begin, host);
    if (!on_host) {
      copy_async(values, host);
    }
  }
  model.bump_epoch();
  check_finite(path, model);
}

void check_finite(const std::filesystem::path& path, shard::ShardedModel& model) {
  const std::string bad = non_finite_parameter(model);
  check<DataError>(bad.empty(),
                   "{}: {} holds a value that is not finite: the file is damaged, or the training "
                   "that made it went wrong: give other weights",
                   path.string(), bad);
}

}  // namespace fsdptrain::tools
