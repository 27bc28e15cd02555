#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/lone_world.h"
#include "comm/meta/meta_ranks.h"
#include "models/common/decoder.h"
#include "models/parallelize.h"
#include "runtime/base/error.h"
#include "shard/parts.h"
#include "shard/sharded_model.h"

// Decoders in training as the trainer has them, and what tests ask of their parameters.
namespace fsdptrain::testing {

// One rank without others, on the CPU or on meta.
class LoneRanks {
 public:
  explicit LoneRanks(Device device = Device::cpu()) {
    if (device == Device::meta()) {
      meta_.emplace(0, 1);
    } else {
      alone_.emplace(comm::World::Options{.device = device});
    }
  }

  // Of a device that is one.
  comm::World& world() { return alone_.value().world(); }
  comm::ProcessGroup& group() { return meta_ ? meta_->group() : alone_->world().group(); }

 private:
  std::optional<comm::MetaRanks> meta_;
  std::optional<comm::LoneWorld> alone_;
};

struct KeptAs {
  DType dtype = DType::Float32;
  std::optional<DType> compute = std::nullopt;
  std::uint64_t seed = 0;
};

// Gradients are sums over the ranks.
inline std::unique_ptr<shard::ShardedModel> shard_decoder(models::Decoder& model,
                                                          comm::ProcessGroup& ranks,
                                                          const KeptAs& kept = {}) {
  auto sharded = std::make_unique<shard::ShardedModel>(
      model, ranks, shard::ShardedModel::Options{.dtype = kept.dtype, .seed = kept.seed});
  models::parallelize(model, *sharded,
                      {.policy = {.param_dtype = kept.compute}, .gradient_divide_factor = 1});
  return sharded;
}

inline shard::ParameterPart part_of(const shard::ShardedModel& sharded, const std::string& name) {
  const auto parts = shard::parts_of(sharded);
  const auto found = std::ranges::find(parts, name, &shard::ParameterPart::name);
  check(found != parts.end(), "the model has no parameter {}", name);
  return *found;
}

// Of one rank, as they are kept.
inline Tensor values_of(const shard::ShardedModel& sharded, const std::string& name) {
  return part_of(sharded, name).values();
}

// What this rank has of all that is trained, and of its gradients.
inline std::vector<double> all_values(shard::ShardedModel& sharded) {
  std::vector<double> all;
  for (const nn::FlatChunk& chunk : sharded.chunks()) {
    const auto values = chunk.parameters.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
inline std::vector<double> all_gradients(shard::ShardedModel& sharded) {
  std::vector<double> all;
  for (const nn::FlatChunk& chunk : sharded.chunks()) {
    const auto values = chunk.gradients.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace fsdptrain::testing
