#include "tools/train/from_config.h"

#include <algorithm>
#include <optional>

#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "models/parallelize.h"
#include "runtime/base/error.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"
#include "tools/model/presets.h"
#include "tools/train/flops.h"
#include "tools/train/model_sizes.h"

namespace fsdptrain::tools {
namespace {

constexpr double kLargestModel = 1e13;

DType dtype_of(const std::string& word) {
  return word == "bfloat16" ? DType::BFloat16 : DType::Float32;
}

std::optional<bool> reshards(const std::string& word) {
  return word == "auto" ? std::nullopt : std::optional(word == "yes");
}

nn::Recompute recompute_policy(const std::string& word) {
  return word == "full"        ? nn::Recompute::Full
         : word == "selective" ? nn::Recompute::Selective
                               : nn::Recompute::None;
}

// A member's name has set its sizes already (model_presets.h).
models::Gpt2Config gpt2_config(const ModelConfig& model) {
  models::Gpt2Config gpt2;
  gpt2.num_layers = model.num_layers;
  gpt2.num_heads = model.num_heads;
  gpt2.embed_dim = model.embed_dim;
  gpt2.vocab_size = model.vocab_size;
  gpt2.max_seq_len = model.max_seq_len;
  gpt2.window = model.window;
  gpt2.norm_eps = model.norm_eps;
  gpt2.bias = model.bias;
  gpt2.dropout = model.dropout;
  return gpt2;
}

models::LlamaConfig llama_config(const ModelConfig& model) {
  const ModelSizes sizes = model_sizes(model);
  models::LlamaConfig llama;
  llama.num_layers = model.num_layers;
  llama.num_heads = model.num_heads;
  llama.num_kv_heads = sizes.num_kv_heads;
  llama.embed_dim = model.embed_dim;
  llama.head_dim = sizes.head_dim;
  llama.ffn_dim = sizes.ffn_dim;
  llama.vocab_size = model.vocab_size;
  llama.max_seq_len = model.max_seq_len;
  llama.window = model.window;
  llama.norm_eps = model.norm_eps;
  llama.tie_embeddings = model.tie_embeddings;
  llama.rope_theta = model.rope_theta;
  llama.rope_scaling = model.rope_scaling == "llama3"   ? models::LlamaConfig::RopeScaling::Llama3
                       : model.rope_scaling == "linear" ? models::LlamaConfig::RopeScaling::Linear
                                                        : models::LlamaConfig::RopeScaling::None;
  llama.rope_factor = model.rope_factor;
  llama.rope_low_freq_factor = model.rope_low_freq_factor;
  llama.rope_high_freq_factor = model.rope_high_freq_factor;
  llama.rope_original_seq_len = model.rope_original_seq_len;
  return llama;
}

// Whether a parameter of `block` has a name in the whole model that the pattern matches.
bool holds_match(const nn::Module& block, const std::vector<nn::Parameter>& all,
                 const std::string& pattern) {
  const auto own = block.parameters();
  return std::ranges::any_of(all, [&](const nn::Parameter& parameter) {
    return nn::matches(pattern, parameter.name) &&
           std::ranges::find(own, parameter.tensor, &nn::Parameter::tensor) != own.end();
  });
}

std::string name_in_block(models::Decoder& model, const std::vector<nn::Parameter>& all) {
  const auto own = model.blocks().front()->parameters();
  return std::ranges::find(all, own.front().tensor, &nn::Parameter::tensor)->name;
}

void set_recompute(models::Decoder& model, const Config& config) {
  model.set_block_recompute(recompute_policy(config.train.recompute));
  const auto all = model.parameters();
  for (const RuleConfig& rule : config.rules) {
    if (!rule.recompute) {
      continue;
    }
    bool any = false;
    for (nn::Module* block : model.blocks()) {
      if (holds_match(*block, all, rule.match)) {
        block->set_recompute(recompute_policy(*rule.recompute));
        any = true;
      }
    }
    check<ConfigError>(any,
                       "[[rules]] match = \"{}\": recompute is for blocks, and none holds a "
                       "matching parameter: match one inside a block, like {}",
                       rule.match, name_in_block(model, all));
  }
}

}  // namespace

std::unique_ptr<models::Decoder> build_model(const Config& config) {
  // Sizes that are possible one by one may be beyond every machine, and 64 bits, together.
  const double parameters = multiplying_weights(config.model);
  check<ConfigError>(parameters <= kLargestModel,
                     "[model]: its sizes make {:.1e} parameters, more than {:.0e}: lower "
                     "model.num_layers, model.embed_dim or another size",
                     parameters, kLargestModel);
  std::unique_ptr<models::Decoder> model;
  if (family_of(config.model.name) == "llama") {
    model = std::make_unique<models::Llama>(llama_config(config.model));
  } else {
    model = std::make_unique<models::Gpt2>(gpt2_config(config.model));
  }
  nn::with_rules(model->parameters(), parameter_rules(config.rules));
  set_recompute(*model, config);
  return model;
}

std::vector<nn::ParameterRule> parameter_rules(const std::vector<RuleConfig>& configs) {
  std::vector<nn::ParameterRule> rules;
  for (const RuleConfig& config : configs) {
    nn::ParameterRule& rule =
        rules.emplace_back(nn::ParameterRule{config.match, config.decay, config.lr_scale, {}, {}});
    if (config.freeze) {
      rule.trainable = !*config.freeze;
    }
    if (config.dtype) {
      rule.dtype = dtype_of(*config.dtype);
    }
  }
  return rules;
}

std::unique_ptr<shard::ShardedModel> shard_model(const Config& config, models::Decoder& model,
                                                 comm::ProcessGroup& ranks,
                                                 comm::ProcessGroup* replicas) {
  const ShardConfig& how = config.shard;
  auto sharded = std::make_unique<shard::ShardedModel>(
      model, ranks,
      shard::ShardedModel::Options{.seed = static_cast<std::uint64_t>(config.run.seed),
                                   .replicas = replicas,
                                   .accumulation = how.accumulate == "exact"
                                                       ? shard::Accumulation::Exact
                                                       : shard::Accumulation::Sharded,
                                   .rules = parameter_rules(config.rules),
                                   .prefetch = static_cast<int>(how.prefetch)});
  // The loss is a mean over the targets of the whole step already.
  models::parallelize(model, *sharded,
                      {.policy = {.param_dtype = compute_dtype(config.train),
                                  .reduce_dtype = dtype_of(how.reduce_dtype)},
                       .reshard_after_forward = reshards(how.reshard_after_forward),
                       .gradient_divide_factor = 1});
  return sharded;
}

TrainStep::Options step_options(const Config& config) {
  return {.grad_clip = config.train.grad_clip,
          .label_smoothing = config.train.label_smoothing,
          .z_loss = config.train.z_loss,
          .unsharded_gradients = config.shard.accumulate == "unsharded"};
}

std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                  const std::vector<nn::FlatChunk>& chunks) {
  if (config.name == "sgd") {
    return std::make_unique<optim::Sgd>(
        chunks,
        optim::Sgd::Options{.momentum = config.momentum, .weight_decay = config.weight_decay});
  }
  check<ConfigError>(config.name == "adamw",
                     "optimizer.name: \"{}\" is no optimizer of this program", config.name);
  return std::make_unique<optim::AdamW>(chunks,
                                        optim::AdamW::Options{.beta1 = config.beta1,
                                                              .beta2 = config.beta2,
                                                              .eps = config.eps,
                                                              .weight_decay = config.weight_decay});
}

optim::LrSchedule build_schedule(const Config& config) {
  optim::LrSchedule schedule;
  schedule.curve = config.schedule.name == "constant" ? optim::LrSchedule::Curve::Constant
                   : config.schedule.name == "linear" ? optim::LrSchedule::Curve::Linear
                   : config.schedule.name == "wsd"    ? optim::LrSchedule::Curve::Wsd
                                                      : optim::LrSchedule::Curve::Cosine;
  schedule.peak = config.optimizer.lr;
  schedule.warmup_steps = config.schedule.warmup_steps;
  schedule.total_steps = config.train.steps;
  schedule.final_fraction = config.schedule.final_lr_fraction;
  schedule.decay_fraction = config.schedule.decay_fraction;
  return schedule;
}

Device device_of(const RunConfig& config) {
  return config.device == "cuda" ? Device::cuda(0) : Device::cpu();
}

comm::nccl::Streams streams_of(const CommConfig& config) {
  return config.streams == "shared" ? comm::nccl::Streams::Shared : comm::nccl::Streams::Separate;
}

DType compute_dtype(const TrainConfig& config) {
  return dtype_of(config.compute_dtype);
}

}  // namespace fsdptrain::tools
