#include "tools/plan/padding.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <iterator>

namespace fsdptrain::tools {
namespace {

struct Sizes {
  std::int64_t numel = 0;
  std::int64_t padding = 0;
};

void add(Sizes& sizes, const shard::BufferLayout& layout) {
  sizes.numel += layout.numel();
  sizes.padding += layout.padding();
}

Sizes sizes_of(const shard::ParamGroup& group) {
  Sizes sizes;
  for (const shard::FlatBuffer& buffer : group.buffers()) {
    add(sizes, buffer.layout());
  }
  return sizes;
}

std::vector<shard::LayoutParameter> parameters_of(const shard::ParamGroup& group) {
  std::vector<shard::LayoutParameter> parameters;
  for (const shard::FlatBuffer& buffer : group.buffers()) {
    for (const shard::Placement& placement : buffer.layout().placements()) {
      const nn::Parameter& parameter = group.parameters()[placement.parameter];
      parameters.push_back({.name = parameter.name,
                            .numel = placement.in_buffer.size(),
                            .key = buffer.layout().key()});
    }
  }
  return parameters;
}

// Of these groups as one unit.
Sizes sizes_together(const std::vector<const shard::ParamGroup*>& groups, int num_ranks,
                     const std::vector<std::vector<std::string>>& adjacent) {
  std::vector<shard::LayoutParameter> parameters;
  for (const shard::ParamGroup* const group : groups) {
    std::ranges::move(parameters_of(*group), std::back_inserter(parameters));
  }
  std::vector<std::vector<std::string>> of_these;
  std::ranges::copy_if(adjacent, std::back_inserter(of_these), [&](const auto& set) {
    return std::ranges::find(parameters, set.front(), &shard::LayoutParameter::name) !=
           parameters.end();
  });
  Sizes sizes;
  for (const auto& layout : shard::plan_layout(parameters, num_ranks, {of_these}).buffers) {
    add(sizes, layout);
  }
  return sizes;
}

// The groups of blocks, in the order of the model; and what all others have.
struct Parts {
  std::vector<const shard::ParamGroup*> blocks;
  std::vector<std::string> names;
  Sizes others;
  int num_ranks = 1;
};

Parts parts_of(const shard::ShardedModel& model, const std::vector<nn::Module*>& blocks) {
  Parts parts;
  for (const auto& unit : model.units()) {
    const shard::ParamGroup& group = unit->group();
    if (std::ranges::find(blocks, unit->modules().front()) != blocks.end()) {
      parts.blocks.push_back(&group);
      parts.names.push_back(unit->name());
    } else {
      const Sizes sizes = sizes_of(group);
      parts.others.numel += sizes.numel;
      parts.others.padding += sizes.padding;
    }
    if (!group.buffers().empty()) {
      parts.num_ranks = group.buffers()[0].layout().num_ranks();
    }
  }
  return parts;
}

// With so many blocks in each unit.
double percent_with(const Parts& parts, std::size_t blocks_in_unit,
                    const std::vector<std::vector<std::string>>& adjacent) {
  Sizes all = parts.others;
  for (std::size_t begin = 0; begin < parts.blocks.size(); begin += blocks_in_unit) {
    const std::size_t end = std::min(begin + blocks_in_unit, parts.blocks.size());
    const auto at = [&](std::size_t i) {
      return parts.blocks.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const Sizes sizes = sizes_together({at(begin), at(end)}, parts.num_ranks, adjacent);
    all.numel += sizes.numel;
    all.padding += sizes.padding;
  }
  return percent_of(all.padding, all.numel);
}

}  // namespace

double percent_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<UnitPadding> padding_of(const shard::ShardedModel& model) {
  std::vector<UnitPadding> all;
  for (const auto& unit : model.units()) {
    const Sizes sizes = sizes_of(unit->group());
    all.push_back({unit->name(), sizes.numel, sizes.padding});
  }
  return all;
}

double total_percent(const std::vector<UnitPadding>& units) {
  Sizes all;
  for (const UnitPadding& unit : units) {
    all.numel += unit.numel;
    all.padding += unit.padding;
  }
  return percent_of(all.padding, all.numel);
}

std::string padding_warning(const shard::ShardedModel& model,
                            const std::vector<nn::Module*>& blocks,
                            const std::vector<std::vector<std::string>>& adjacent) {
  const double now = total_percent(padding_of(model));
  if (now <= kMuchPadding) {
    return "";
  }
  const Parts parts = parts_of(model, blocks);
  std::string text = fmt::format(
      "{:.1f} % of the memory of parameters, gradients and states is padding, because a rank has "
      "only a few granules of each block",
      now);
  for (std::size_t together = 2; together < 2 * parts.blocks.size(); together *= 2) {
    const std::size_t count = std::min(together, parts.blocks.size());
    const double percent = percent_with(parts, count, adjacent);
    if (percent <= kMuchPadding) {
      return text + fmt::format(
                        ": {} blocks as one unit, from fully_shard({{{}, ..., {}}}) on, "
                        "leave {:.1f} %",
                        count, parts.names.front(), parts.names[count - 1], percent);
    }
  }
  return text + ": even all blocks as one unit leave more: share the model out over fewer ranks";
}

}  // namespace fsdptrain::tools
