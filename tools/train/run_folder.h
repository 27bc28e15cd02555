#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "runtime/nn/flat_parameters.h"
#include "tools/config.h"

// What a run leaves behind: <run.dir>/config.toml, metrics.jsonl and weights.safetensors.
namespace fsdptrain::tools {

class RunFolder {
 public:
  // Makes the folder and writes the resolved configuration; ConfigError if it exists and is not
  // empty.
  static RunFolder create(const Config& config);
  // Of an earlier run; DataError if it holds no weights.
  static RunFolder open(const std::filesystem::path& dir);

  std::filesystem::path metrics() const { return dir_ / "metrics.jsonl"; }
  std::filesystem::path weights() const { return dir_ / "weights.safetensors"; }

 private:
  explicit RunFolder(std::filesystem::path dir) : dir_(std::move(dir)) {}

  std::filesystem::path dir_;
};

// Appends one JSON object a line. A line is written whole or not at all.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& path);
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  ~MetricsWriter();

  // IoError, the file as it was, if the system refuses.
  void write(const std::string& json_line);

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// All parameters by name, with the resolved configuration as metadata. Atomic.
void save_weights(const std::filesystem::path& path, const nn::FlatParameters& parameters,
                  const Config& config);
// The configuration that the weights were trained with.
Config config_of_weights(const std::filesystem::path& path);
// Every parameter must be there with its shape and dtype, and nothing else; DataError listing
// what is missing, extra or misfitting, before any value is changed.
void load_weights(const std::filesystem::path& path, nn::FlatParameters& parameters);

}  // namespace fsdptrain::tools
