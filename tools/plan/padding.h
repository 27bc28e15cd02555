#pragma once

#include <string>
#include <vector>

#include "shard/sharded_model.h"

// What of flat buffers is no parameter's, and what to do about it.
namespace fsdptrain::tools {

struct UnitPadding {
  std::string unit;
  std::int64_t numel = 0;
  std::int64_t padding = 0;
};

double percent_of(std::int64_t part, std::int64_t whole);

std::vector<UnitPadding> padding_of(const shard::ShardedModel& model);

// In percent of all buffers.
double total_percent(const std::vector<UnitPadding>& units);

// Above this it is worth a word.
inline constexpr double kMuchPadding = 1;

// "12.3 % of all buffers is padding, ...: ..." naming how many blocks as one unit leave less than
// kMuchPadding; empty where there is no more than that. `blocks` are the modules that may be put
// together.
std::string padding_warning(const shard::ShardedModel& model,
                            const std::vector<nn::Module*>& blocks,
                            const std::vector<std::vector<std::string>>& adjacent);

}  // namespace fsdptrain::tools
