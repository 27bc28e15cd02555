#pragma once

#include <memory>
#include <vector>

#include "comm/nccl/connect.h"
#include "comm/process_group.h"
#include "models/common/decoder.h"
#include "runtime/base/dtype.h"
#include "runtime/nn/parameter_rules.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizer.h"
#include "shard/sharded_model.h"
#include "tools/config/config.h"
#include "tools/train/train_step.h"

// From configuration to objects: the one place that knows both.
namespace fsdptrain::tools {

// The model, whose blocks recompute as train.recompute and the rules say; on meta, without memory.
// ConfigError for rules that do not fit its parameters.
std::unique_ptr<models::Decoder> build_model(const Config& config);

// What [[rules]] say of its parameters.
std::vector<nn::ParameterRule> parameter_rules(const std::vector<RuleConfig>& configs);

// The same model shared out over ranks, as [shard] and the rules say; `replicas` as
// ShardedModel::Options has it. It refers to the model and the groups.
std::unique_ptr<shard::ShardedModel> shard_model(const Config& config, models::Decoder& model,
                                                 comm::ProcessGroup& ranks,
                                                 comm::ProcessGroup* replicas = nullptr);

TrainStep::Options step_options(const Config& config);

std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                  const std::vector<nn::FlatChunk>& chunks);

optim::LrSchedule build_schedule(const Config& config);

// Of the first rank of this process.
Device device_of(const RunConfig& config);

// Of NCCL, where that device is one of its.
comm::nccl::Streams streams_of(const CommConfig& config);

DType compute_dtype(const TrainConfig& config);

}  // namespace fsdptrain::tools
