#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "models/parallelize.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/optim/adamw.h"
#include "runtime/tensor/transfer.h"
#include "shard/gathered_scope.h"
#include "shard/sharded_model.h"
#include "tests/support/block_chain.h"
#include "tests/support/tiny_decoders.h"

// Schedules of the steps of a sharded model, by name: what is gathered when, which forwards and
// backwards a step has, and in which order.
namespace fsdptrain::testing {

class ScheduledRank;

// A chain, and a parameter that no forward reads: what ranks agree on at the end of a step decides
// whether the optimizer skips it.
class ScheduledChain final : public nn::Module {
 public:
  ScheduledChain() {
    register_module("chain", chain);
    register_parameter("unused", unused, {.init = nn::Init::normal(0.5)});
  }

  Chain chain{3};
  Tensor unused = nn::unplaced_parameter({kChainWidth});

 private:
  Tensor forward(const Tensor& x) override { return chain(x); }
};

struct ShardedSchedule {
  std::string name;
  shard::ShardedUnit::Options unit = {};
  shard::ShardedModel::Options model = {};
  nn::Recompute recompute = nn::Recompute::None;
  // Of blocks, which are a unit each where there are no lists.
  std::vector<std::vector<std::size_t>> lists = {};
  std::vector<std::size_t> route = {};
  // GPT-2, whose head shares the embedding, in the place of three equal blocks.
  bool is_tied = false;
  comm::nccl::Streams streams = comm::nccl::Streams::Separate;
  // Once, before the first step.
  std::function<void(ScheduledRank&)> prepare = [](ScheduledRank& /*rank*/) {};
  std::function<void(ScheduledRank&)> forwards_and_backwards;
  // From the second step on all memory is that of the first, and what the pool has planned.
  bool keeps_to_plan = true;
};

// One rank that trains by a schedule, on the device of its world. Gradients are summed over ranks,
// clipped, and given to AdamW.
class ScheduledRank {
 public:
  ScheduledRank(comm::World& world, const ShardedSchedule& schedule)
      : world_(world), schedule_(schedule) {
    make_model();
    shard::ShardedModel::Options options = schedule.model;
    options.seed = 5;
    sharded_ = std::make_unique<shard::ShardedModel>(*model_, world.group(), options);
    shard_model();
    schedule.prepare(*this);
    optimizer_ = std::make_unique<optim::AdamW>(sharded_->chunks(),
                                                optim::AdamW::Options{.weight_decay = 0.1});
  }

  shard::ShardedModel& sharded() { return *sharded_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  shard::ShardedUnit& unit(std::size_t i) { return *sharded_->units()[i]; }

  // The loss of the next micro-batch, which no other rank and no other call has.
  Tensor forward() { return loss_(num_forwards_++); }
  // Of several of a step.
  void backward(const Tensor& loss, bool is_last = true) {
    sharded_->set_is_last_backward(is_last);
    autograd::backward(loss);
  }

  void step() {
    sharded_->zero_grad();
    schedule_.forwards_and_backwards(*this);
    optimizer_->step(sharded_->chunks(), 0.01, sharded_->clip_grad_norm(0.5).scale);
    sharded_->bump_epoch();
  }

  // What this rank keeps of the parameters.
  std::vector<std::vector<double>> chunks() {
    std::vector<std::vector<double>> chunks;
    for (const nn::FlatChunk& chunk : sharded_->chunks()) {
      chunks.push_back(chunk.parameters.to_vector());
    }
    return chunks;
  }

 private:
  void make_model() {
    if (schedule_.is_tied) {
      auto decoder = std::make_unique<models::Gpt2>(tiny_gpt2());
      decoder->set_block_recompute(schedule_.recompute);
      loss_ = [this, &model = *decoder](int number) { return decoder_loss(model, number); };
      decoder_ = decoder.get();
      model_ = std::move(decoder);
      return;
    }
    auto whole = std::make_unique<ScheduledChain>();
    chain_ = &whole->chain;
    chain_->route = schedule_.route;
    for (const auto& block : chain_->blocks) {
      block->set_recompute(schedule_.recompute);
    }
    loss_ = [this, &model = *whole](int number) { return chain_loss(model, number); };
    model_ = std::move(whole);
  }

  void shard_model() {
    shard::ShardedUnit::Options options = schedule_.unit;
    options.gradient_divide_factor = 1;
    if (decoder_ != nullptr) {
      models::parallelize(*decoder_, *sharded_, options);
      return;
    }
    auto lists = schedule_.lists;
    for (std::size_t i = 0; lists.size() < chain_->blocks.size() && schedule_.lists.empty(); ++i) {
      lists.push_back({i});
    }
    for (const auto& list : lists) {
      std::vector<nn::Module*> modules;
      for (const std::size_t i : list) {
        modules.push_back(chain_->blocks[i].get());
      }
      sharded_->fully_shard(modules, options);
    }
    sharded_->fully_shard(*model_, options);
  }

  Tensor chain_loss(ScheduledChain& chain, int number) {
    const Tensor x =
        random_tensor({4, kChainWidth}, static_cast<std::uint64_t>(world_.rank() + 100 * number),
                      1.0, DType::Float32);
    const Tensor y = chain(to_device(x, world_.group().device()));
    return ops::sum(ops::multiply(y, y));
  }

  Tensor decoder_loss(models::Decoder& model, int number) {
    RandomKeys& random = current_context().random;
    random.step = static_cast<std::uint64_t>(number);
    random.first_sample = static_cast<std::uint64_t>(2 * world_.rank());
    const Device device = world_.group().device();
    return model.loss(models::one_document(to_device(tiny_tokens(world_.rank(), number), device)),
                      to_device(tiny_tokens(world_.rank(), number + 50), device),
                      {.loss_scale = 0.1});
  }

  comm::World& world_;
  const ShardedSchedule& schedule_;
  std::unique_ptr<nn::Module> model_;
  // Of the model, one or the other.
  Chain* chain_ = nullptr;
  models::Decoder* decoder_ = nullptr;
  std::function<Tensor(int number)> loss_;
  std::unique_ptr<shard::ShardedModel> sharded_;
  std::unique_ptr<optim::AdamW> optimizer_;
  int num_forwards_ = 0;
};

// What a rank has after three steps.
inline std::vector<std::vector<double>> train_by(const ShardedSchedule& schedule,
                                                 comm::World& world) {
  ScheduledRank rank(world, schedule);
  for (int step = 0; step < 3; ++step) {
    rank.step();
  }
  return rank.chunks();
}

}  // namespace fsdptrain::testing
