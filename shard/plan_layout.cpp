#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/base/error.h"
#include "shard/layout.h"

namespace fsdptrain::shard {
namespace {

constexpr std::int64_t kGranule = 128;
constexpr std::int64_t kSmallGranule = 32;
// Below so many granules a rank, small ones.
constexpr std::int64_t kManyGranules = 400;
// Row groups are at most this part of a chunk.
constexpr std::int64_t kChunkPerRowGroup = 100;
// Of a parameter, and of all: sizes in bytes, and sums of two of them, fit an int64.
constexpr std::int64_t kMaxNumel = std::int64_t{1} << 48;
constexpr std::int64_t kMaxBufferNumel = std::int64_t{1} << 56;

using Parameters = std::span<const LayoutParameter>;
// Numbers of parameters that lie without gaps.
using Set = std::vector<std::size_t>;

std::int64_t divide_up(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return divide_up(value, multiple) * multiple;
}

std::int64_t common_multiple(std::int64_t a, std::int64_t b, const std::string& parameter) {
  std::int64_t product = 0;
  const bool overflows = __builtin_mul_overflow(a / std::gcd(a, b), b, &product);
  check<ShapeError>(!overflows && product <= kMaxNumel,
                    "layout: row groups of {} elements, of {}, have no common multiple with {} "
                    "below 2^48",
                    b, parameter, a);
  return product;
}

std::map<std::string, std::size_t> by_name(Parameters parameters) {
  std::map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const LayoutParameter& parameter = parameters[i];
    check<ConfigError>(numbers.emplace(parameter.name, i).second,
                       "layout: two parameters have the name {}", parameter.name);
    check<ShapeError>(parameter.numel >= 0 && parameter.numel <= kMaxNumel,
                      "layout: {} must have 0 to 2^48 elements, got {}", parameter.name,
                      parameter.numel);
    check<ShapeError>(parameter.row_group >= 1 && parameter.row_group <= kMaxNumel,
                      "layout: a row group of {} must have 1 to 2^48 elements, got {}",
                      parameter.name, parameter.row_group);
  }
  return numbers;
}

// All parameters, each adjacent set at the place of its first member.
std::vector<Set> in_sets(Parameters parameters, const LayoutConstraints& constraints) {
  const auto numbers = by_name(parameters);
  std::vector<Set> set_of(parameters.size());
  std::vector<bool> is_member(parameters.size(), false);
  for (const auto& names : constraints.adjacent) {
    Set set;
    for (const std::string& name : names) {
      const auto found = numbers.find(name);
      check<ConfigError>(found != numbers.end() && !is_member[found->second],
                         "layout: adjacent parameter {} is unknown or in two sets", name);
      is_member[found->second] = true;
      set.push_back(found->second);
      check<ConfigError>(parameters[set.front()].key == parameters[found->second].key,
                         "layout: {} and {} are adjacent: they must be kept, gathered and reduced "
                         "in the same dtypes, and both be trained or both be frozen",
                         names.front(), name);
    }
    if (!set.empty()) {
      set_of[set.front()] = set;
    }
  }
  std::vector<Set> sets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!set_of[i].empty()) {
      sets.push_back(set_of[i]);
    } else if (!is_member[i]) {
      sets.push_back({i});
    }
  }
  return sets;
}

// One buffer of W chunks for sets of one key.
class Packing {
 public:
  Packing(Parameters parameters, std::vector<Set> sets, int num_ranks, std::int64_t granule)
      : parameters_(parameters), num_ranks_(num_ranks), granule_(granule), alignment_(granule) {
    std::vector<std::pair<std::int64_t, Set>> aligned;
    for (Set& set : sets) {
      const std::int64_t alignment = alignment_of(set);
      aligned.emplace_back(alignment, std::move(set));
    }
    // No gap is wider than its successor's alignment: the wide ones first, at 0.
    std::ranges::stable_sort(aligned, std::greater(), &std::pair<std::int64_t, Set>::first);
    for (const auto& [alignment, set] : aligned) {
      place(set, alignment);
    }
  }

  bool has_few_granules() const {
    return divide_up(divide_up(end_, granule_), num_ranks_) < kManyGranules;
  }

  BufferLayout layout(const BufferKey& key) const {
    const std::int64_t chunk = round_up(divide_up(end_, num_ranks_), alignment_);
    check<ShapeError>(alignment_ == granule_ || alignment_ <= chunk / kChunkPerRowGroup,
                      "layout: the common multiple of all row groups and the granule must be at "
                      "most 1 % of a chunk, got {} elements for chunks of {} on {} ranks",
                      alignment_, chunk, num_ranks_);
    return {key, num_ranks_, granule_, chunk, placements_};
  }

 private:
  // Chunks begin on multiples of all alignments: row groups that begin on a multiple of their own
  // are in one of them.
  std::int64_t alignment_of(const Set& set) {
    std::int64_t alignment = granule_;
    if (num_ranks_ == 1) {
      return alignment;
    }
    std::int64_t numel = 0;
    for (const std::size_t i : set) {
      const auto& [name, size, key, row_group] = parameters_[i];
      check<ConfigError>(numel % row_group == 0,
                         "layout: {} comes after {} elements of its adjacent set: its row groups "
                         "must divide that, got {} elements",
                         name, numel, row_group);
      alignment = common_multiple(alignment, row_group, name);
      numel += size;
    }
    alignment_ = common_multiple(alignment_, alignment, parameters_[set.front()].name);
    return alignment;
  }

  void place(const Set& set, std::int64_t alignment) {
    end_ = round_up(end_, alignment);
    for (const std::size_t i : set) {
      const std::int64_t begin = end_;
      end_ += parameters_[i].numel;
      check<ShapeError>(end_ <= kMaxBufferNumel,
                        "layout: parameters of one buffer must have at most 2^56 elements, got {} "
                        "with {}",
                        end_, parameters_[i].name);
      placements_.push_back({.parameter = i, .in_buffer = {begin, end_}});
    }
  }

  Parameters parameters_;
  int num_ranks_;
  std::int64_t granule_;
  // Of chunks.
  std::int64_t alignment_;
  std::int64_t end_ = 0;
  std::vector<Placement> placements_;
};

BufferLayout plan_buffer(Parameters parameters, const std::vector<Set>& sets, int num_ranks,
                         const BufferKey& key) {
  const Packing packing(parameters, sets, num_ranks, kGranule);
  if (packing.has_few_granules()) {
    return Packing(parameters, sets, num_ranks, kSmallGranule).layout(key);
  }
  return packing.layout(key);
}

}  // namespace

GroupLayout plan_layout(std::span<const LayoutParameter> parameters, int num_ranks,
                        const LayoutConstraints& constraints) {
  check<ShapeError>(num_ranks >= 1, "layout: there must be at least one rank, got {}", num_ranks);
  const std::vector<Set> sets = in_sets(parameters, constraints);
  GroupLayout layout;
  layout.places.resize(parameters.size());
  for (const LayoutParameter& parameter : parameters) {
    const BufferKey& key = parameter.key;
    if (std::ranges::find(layout.buffers, key, &BufferLayout::key) != layout.buffers.end()) {
      continue;
    }
    std::vector<Set> of_key;
    std::ranges::copy_if(sets, std::back_inserter(of_key),
                         [&](const Set& set) { return parameters[set.front()].key == key; });
    layout.buffers.push_back(plan_buffer(parameters, of_key, num_ranks, key));
  }
  for (std::size_t buffer = 0; buffer < layout.buffers.size(); ++buffer) {
    const auto& placements = layout.buffers[buffer].placements();
    for (std::size_t i = 0; i < placements.size(); ++i) {
      layout.places[placements[i].parameter] = {buffer, i};
    }
  }
  return layout;
}

}  // namespace fsdptrain::shard
