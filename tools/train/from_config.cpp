#include "tools/train/from_config.h"

#include "models/gpt2/model.h"
#include "runtime/base/error.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"

namespace fsdptrain::tools {
namespace {

nn::Recompute recompute_policy(const TrainConfig& config) {
  return config.recompute == "full"        ? nn::Recompute::Full
         : config.recompute == "selective" ? nn::Recompute::Selective
                                           : nn::Recompute::None;
}

}  // namespace

std::unique_ptr<models::Decoder> build_model(const Config& config) {
  const ModelConfig& model = config.model;
  // A member's name has set its sizes already (model_presets.h).
  models::Gpt2Config gpt2;
  gpt2.num_layers = model.num_layers;
  gpt2.num_heads = model.num_heads;
  gpt2.embed_dim = model.embed_dim;
  gpt2.vocab_size = model.vocab_size;
  gpt2.max_seq_len = model.max_seq_len;
  gpt2.bias = model.bias;
  gpt2.dropout = model.dropout;
  auto decoder = std::make_unique<models::Gpt2>(gpt2);
  decoder->set_block_recompute(recompute_policy(config.train));
  return decoder;
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

DType compute_dtype(const TrainConfig& config) {
  return config.compute_dtype == "bfloat16" ? DType::BFloat16 : DType::Float32;
}

}  // namespace fsdptrain::tools
