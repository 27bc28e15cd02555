#pragma once

#include <memory>
#include <vector>

#include "comm/nccl/connect.h"
#include "models/common/decoder.h"
#include "runtime/base/dtype.h"
#include "runtime/nn/flat_parameters.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizer.h"
#include "tools/config.h"

// From configuration to objects: the one place that knows both.
namespace fsdptrain::tools {

// The model, whose blocks recompute as train.recompute and the rules say; on meta, without memory.
// ConfigError for rules that do not fit its parameters.
std::unique_ptr<models::Decoder> build_model(const Config& config);

// How the parameters of that model are kept, the rules included.
nn::FlatParameters::Options parameter_options(const Config& config, Device device);

std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                  const std::vector<nn::FlatChunk>& chunks);

optim::LrSchedule build_schedule(const Config& config);

// Of the first rank of this process.
Device device_of(const RunConfig& config);

// Of NCCL, where that device is one of its.
comm::nccl::Streams streams_of(const CommConfig& config);

DType compute_dtype(const TrainConfig& config);

}  // namespace fsdptrain::tools
