#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What a run is told: one plain struct per section of its TOML file. A new key is a member here,
// with its default, and one line in config_fields.cpp, which says all the rest about it.
namespace fsdptrain::tools {

struct RunConfig {
  std::string dir = "runs/default";
  std::int64_t seed = 1;
  std::int64_t threads = 0;
  std::string device = "cpu";
};

struct ModelConfig {
  std::string name = "gpt2";
  std::int64_t num_layers = 6;
  std::int64_t num_heads = 6;
  std::int64_t num_kv_heads = 0;
  std::int64_t embed_dim = 384;
  std::int64_t head_dim = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t vocab_size = 257;
  std::int64_t max_seq_len = 256;
  std::int64_t window = 0;
  double norm_eps = 1e-5;
  double dropout = 0.0;
  bool bias = true;
  bool tie_embeddings = false;
  double rope_theta = 500000;
  std::string rope_scaling = "none";
  double rope_factor = 8;
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_seq_len = 8192;
  std::string init_from;
};

struct DataConfig {
  std::vector<std::string> tokens;
  std::vector<double> weights;
  std::vector<std::string> validation;
  double validation_fraction = 0.1;
  bool mask_documents = true;
};

struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t global_batch = 32;
  std::int64_t micro_batch = 8;
  std::int64_t seq_len = 256;
  std::string compute_dtype = "float32";
  std::string recompute = "none";
  double grad_clip = 1.0;
  double label_smoothing = 0.0;
  double z_loss = 0.0;
  double ema_decay = 0.0;
  std::string non_finite = "stop";
  std::int64_t non_finite_limit = 10;
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
  double decay_fraction = 0.2;
};

struct EvalConfig {
  std::int64_t every = 0;
  std::int64_t batches = 0;
  std::vector<std::string> prompts;
  std::int64_t sample_tokens = 100;
  double sample_temperature = 0.8;
};

struct MeshConfig {
  std::int64_t replicate = 1;
  std::int64_t shard = 0;
};

struct ShardConfig {
  std::string reshard_after_forward = "auto";
  std::int64_t prefetch = 1;
  std::string reduce_dtype = "float32";
  std::string accumulate = "sharded";
};

struct CommConfig {
  std::int64_t timeout = 600;
  std::string streams = "separate";
};

struct CheckpointConfig {
  std::int64_t every = 0;
  double every_minutes = 0;
  std::int64_t keep = 2;
  bool async = true;
  std::string on_error = "continue";
  std::int64_t error_limit = 3;
  std::int64_t timeout = 1800;
};

struct LogConfig {
  std::int64_t every = 10;
};

// What is different about the parameters whose name matches, and the blocks that hold them.
struct RuleConfig {
  std::string match;
  std::optional<bool> decay = {};
  std::optional<double> lr_scale = {};
  std::optional<bool> freeze = {};
  std::optional<std::string> dtype = {};
  std::optional<std::string> recompute = {};

  friend bool operator==(const RuleConfig&, const RuleConfig&) = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvalConfig eval;
  MeshConfig mesh;
  ShardConfig shard;
  CommConfig comm;
  CheckpointConfig checkpoint;
  LogConfig log;
  // In the order of the file: a later rule wins.
  std::vector<RuleConfig> rules;
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

// ConfigError unless the key "section.key" of texts, which has no default, was given.
void require_key(const Config& config, std::string_view key);

}  // namespace fsdptrain::tools
