#include "tools/model/summary.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "runtime/base/rank_context.h"
#include "runtime/nn/parameter_rules.h"
#include "tools/plan/rehearsal.h"
#include "tools/train/from_config.h"
#include "tools/train/training_rank.h"

namespace fsdptrain::tools {
namespace {

// "h.12.ln_1.weight" as {"h.", 12, ".ln_1.weight"}.
struct BlockName {
  std::string before;
  std::int64_t block = 0;
  std::string behind;
};

// The first part that is a number is that of the block; without one, the name is all before it.
BlockName split_name(const std::string& name) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    std::int64_t block = 0;
    const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, block);
    if (error == std::errc() && rest == name.data() + end) {
      return {name.substr(0, begin), block, name.substr(end)};
    }
    begin = end + 1;
  }
  return {name, 0, ""};
}

// {0, 1, 2, 5} as "{0-2,5}"; one number as it is. `blocks` rise.
std::string as_ranges(const std::vector<std::int64_t>& blocks) {
  std::vector<std::string> ranges;
  for (std::size_t begin = 0; begin < blocks.size();) {
    std::size_t end = begin + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + 1) {
      ++end;
    }
    ranges.push_back(end == begin + 1 ? fmt::format("{}", blocks[begin])
                                      : fmt::format("{}-{}", blocks[begin], blocks[end - 1]));
    begin = end;
  }
  return blocks.size() == 1 ? ranges.front() : fmt::format("{{{}}}", fmt::join(ranges, ","));
}

ParameterRow row_of(const nn::Parameter& parameter) {
  const nn::ParameterSpec& spec = parameter.spec;
  return {.name = parameter.name,
          .shape = parameter.tensor->shape(),
          .dtype = spec.dtype.value_or(DType::Float32),
          .trained = spec.trainable,
          .decay = spec.decay,
          .lr_scale = spec.lr_scale};
}

}  // namespace

std::vector<ParameterRow> parameter_rows(const Config& config, bool folded) {
  const auto model = build_model(config);
  const auto parameters = nn::with_rules(model->parameters(), parameter_rules(config.rules));
  std::vector<ParameterRow> rows;
  std::map<std::string, std::pair<std::size_t, std::vector<std::int64_t>>> blocks_of;
  for (const nn::Parameter& parameter : parameters) {
    const ParameterRow row = row_of(parameter);
    const BlockName name = split_name(row.name);
    if (!folded || name.behind.empty()) {
      rows.push_back(row);
      continue;
    }
    const std::string key = fmt::format("{}*{} {} {} {} {} {}", name.before, name.behind, row.shape,
                                        row.dtype, row.trained, row.decay, row.lr_scale);
    auto& [index, blocks] = blocks_of[key];
    if (blocks.empty()) {
      index = rows.size();
      rows.push_back(row);
    }
    blocks.push_back(name.block);
    rows[index].count = static_cast<std::int64_t>(blocks.size());
    rows[index].name = name.before + as_ranges(blocks) + name.behind;
  }
  return rows;
}

MemoryCounters step_memory(const Config& config, comm::ProcessGroup& ranks) {
  TrainingRank rank(config, ranks);
  rank.begin_average();
  // From the second on, micro-batches are alike, and so are steps.
  const int num_micro_batches = config.train.global_batch > config.train.micro_batch ? 2 : 1;
  Allocator& allocator = current_context().allocator(ranks.device());
  for (std::uint64_t number = 0; number < 2; ++number) {
    allocator.reset_peaks();
    rehearse_step(rank, ranks, num_micro_batches, number);
  }
  return allocator.counters();
}

}  // namespace fsdptrain::tools
