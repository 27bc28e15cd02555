#include "tools/train/run_folder.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/config_print.h"

namespace fsdptrain::tools {

namespace fs = std::filesystem;

RunFolder RunFolder::create(const Config& config) {
  const fs::path dir = config.run.dir;
  std::error_code error;
  check<ConfigError>(
      !fs::exists(dir, error) || (fs::is_directory(dir, error) && fs::is_empty(dir, error)),
      "run.dir: {} exists already: give another folder, or move it away", dir.string());
  fs::create_directories(dir, error);
  check<IoError>(!error, "run.dir: {} cannot be made: {}", dir.string(), error.message());
  const std::string toml = to_toml(config);
  AtomicFile file(dir / "config.toml");
  file.write_at(0, std::as_bytes(std::span(toml)));
  file.commit();
  return RunFolder(dir);
}

RunFolder RunFolder::open(const fs::path& dir) {
  RunFolder folder(dir);
  std::error_code error;
  check<DataError>(fs::exists(folder.weights(), error),
                   "{}: holds no weights.safetensors: give the folder of a run that has ended",
                   dir.string());
  return folder;
}

MetricsWriter::MetricsWriter(const fs::path& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  check<IoError>(descriptor_ >= 0, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
}

MetricsWriter::~MetricsWriter() {
  ::close(descriptor_);
}

void MetricsWriter::write(const std::string& json_line) {
  const std::string line = json_line + "\n";
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  const ssize_t written = ::write(descriptor_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    return;
  }
  const int reason = written < 0 ? errno : ENOSPC;
  // What is left is a file of whole lines.
  const bool restored = ::ftruncate(descriptor_, before) == 0;
  fail<IoError>("{}: a line of {} bytes cannot be written: {}{}: free some space and start again",
                path_.string(), line.size(), std::strerror(reason),
                restored ? "" : " (and the file ends in half a line)");
}

void save_weights(const fs::path& path, const nn::FlatParameters& parameters,
                  const Config& config) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const auto& parameter : parameters.named()) {
    specs.push_back({parameter.name, parameter.values.dtype(), parameter.values.shape()});
  }
  checkpoint::SafetensorsWriter writer(path, {{"config", to_toml(config)}, {"format", "fsdptrain"}},
                                       specs);
  for (const auto& parameter : parameters.named()) {
    writer.write(parameter.name, parameter.values.bytes());
  }
  writer.commit();
}

Config config_of_weights(const fs::path& path) {
  const checkpoint::SafetensorsReader reader(path);
  const auto found = reader.metadata().find("config");
  check<DataError>(found != reader.metadata().end(),
                   "{}: its metadata hold no configuration: it was not written by fsdptrain train",
                   path.string());
  return parse_config(found->second, path.string());
}

void load_weights(const fs::path& path, nn::FlatParameters& parameters) {
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
    reader.read(reader.find(parameter.name), parameter.values.bytes());
  }
  parameters.bump_epoch();
}

}  // namespace fsdptrain::tools
