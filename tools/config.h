#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// What a run is told: one plain struct per section of its TOML file. A new key is a member here,
// with its default, and one line in config_fields.cpp, which says all the rest about it.
namespace fsdptrain::tools {

struct RunConfig {
  std::string dir = "runs/default";
  std::int64_t seed = 1;
  std::int64_t threads = 0;
};

struct ModelConfig {
  std::string name = "gpt2";
  std::int64_t num_layers = 6;
  std::int64_t num_heads = 6;
  std::int64_t embed_dim = 384;
  std::int64_t vocab_size = 257;
  std::int64_t max_seq_len = 256;
  double dropout = 0.0;
  bool bias = true;
};

struct DataConfig {
  std::string tokens;
  double validation_fraction = 0.1;
};

struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t global_batch = 32;
  std::int64_t micro_batch = 8;
  std::int64_t seq_len = 256;
  std::string compute_dtype = "float32";
  std::string recompute = "none";
  double grad_clip = 1.0;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
};

struct ScheduleConfig {
  std::string name = "cosine";
  std::int64_t warmup_steps = 0;
  double final_lr_fraction = 0.1;
};

struct EvalConfig {
  std::int64_t every = 0;
  std::int64_t batches = 0;
};

struct LogConfig {
  std::int64_t every = 10;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvalConfig eval;
  LogConfig log;
};

// Reads TOML text, then applies overrides "section.key=value", then checks the whole. `source`
// names the text in errors. ConfigError, naming the source, the key, the value and what to do,
// for an unknown key, a wrong type, a value out of range or keys that do not fit each other; a
// warning for a key without effect.
Config parse_config(std::string_view toml, const std::string& source,
                    std::span<const std::string> overrides = {});

// The same for a file; without one, the defaults and the overrides.
Config load_config(const std::optional<std::filesystem::path>& file,
                   std::span<const std::string> overrides = {});

// ConfigError unless the text key "section.key", which has no default, was given.
void require_key(const Config& config, std::string_view key);

}  // namespace fsdptrain::tools
