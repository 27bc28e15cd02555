#pragma once

#include <bit>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "shard/sharded_model.h"
#include "tests/support/sharded_net.h"

// Gradients of all parameters, put together from the parts of ranks that are threads.
namespace fsdptrain::testing {

class WholeGradients {
 public:
  // By each rank of the shard axis, once, after it has marked active segments: parameters without a
  // gradient are left out.
  void add(shard::ShardedModel& model) {
    const std::lock_guard lock(mutex_);
    for (const auto& unit : model.units()) {
      for (const shard::FlatBuffer& buffer : unit->group().buffers()) {
        if (buffer.trainable()) {
          add(unit->group(), buffer, model.ranks().rank());
        }
      }
    }
  }

  const Values& values() const { return values_; }

 private:
  void add(const shard::ParamGroup& group, const shard::FlatBuffer& buffer, int rank) {
    for (const auto& placement : buffer.layout().placements()) {
      const nn::Parameter& parameter = group.parameters()[placement.parameter];
      bool is_active = false;
      for (const auto& member : buffer.members()) {
        is_active = is_active || (member.parameter == placement.parameter && member.has_gradient);
      }
      if (!is_active) {
        continue;
      }
      std::vector<double>& whole = values_[parameter.name];
      whole.resize(static_cast<std::size_t>(placement.in_buffer.size()));
      const shard::LocalRange part = buffer.layout().local_range(placement, rank);
      for (std::int64_t i = 0; i < part.in_chunk.size(); ++i) {
        whole[static_cast<std::size_t>(part.in_parameter.begin + i)] =
            buffer.gradients().item(part.in_chunk.begin + i);
      }
    }
  }

  std::mutex mutex_;
  Values values_;
};

// Of two sets of values of the same names; zero and -0 differ.
inline std::int64_t num_different_bits(const Values& a, const Values& b) {
  std::int64_t count = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    REQUIRE_MESSAGE(other != b.end(), name);
    REQUIRE(values.size() == other->second.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool same =
          std::bit_cast<std::uint64_t>(values[i]) == std::bit_cast<std::uint64_t>(other->second[i]);
      count += same ? 0 : 1;
    }
  }
  return count;
}

}  // namespace fsdptrain::testing
