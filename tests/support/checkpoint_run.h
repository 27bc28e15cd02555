#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load/loader.h"
#include "checkpoint/save/saver.h"
#include "comm/run_ranks.h"
#include "models/parallelize.h"
#include "runtime/autograd/engine.h"
#include "runtime/base/ignored_target.h"
#include "runtime/optim/adamw.h"
#include "tests/support/replicated.h"
#include "tests/support/tiny_decoders.h"
#include "tests/support/whole_gradients.h"

// Small training programs, on ranks that are threads, that save and load.
namespace fsdptrain::testing {

enum class Mode {
  Sharded,
  // Each rank has all of the model.
  Replicated,
  // Some parameters are frozen, of them some in another dtype, and all are computed in bfloat16.
  MixedDTypes,
  Frozen,
  // The embedding is the head.
  Tied,
  // As sharded, in float64.
  Float64,
};

// What the program has beside its model.
class Notes final : public checkpoint::Stateful {
 public:
  explicit Notes(Kind kind) : kind_(kind) {}
  Kind kind() const override { return kind_; }
  nlohmann::json state() const override { return value; }
  void load(const nlohmann::json& state) override { value = state; }

  nlohmann::json value = nullptr;

 private:
  Kind kind_;
};

// One rank's part of a program.
class CheckpointRun {
 public:
  static constexpr int kMicroBatches = 8;

  CheckpointRun(comm::World& of, Mode mode, std::uint64_t seed = 5)
      : world(of),
        axes_(of, mode == Mode::Replicated),
        model_(make_model(mode)),
        sharded(std::make_unique<shard::ShardedModel>(*model_, axes_.shards,
                                                      options_of(mode, axes_.replicas, seed))) {
    models::parallelize(
        *model_, *sharded,
        {.policy = {.param_dtype =
                        mode == Mode::MixedDTypes ? std::optional(DType::BFloat16) : std::nullopt},
         .gradient_divide_factor = 1});
    optimizer.emplace(sharded->chunks(), optim::AdamW::Options{});
    average.emplace(sharded->chunks(), 0.9);
  }

  checkpoint::TrainingState state() {
    return {.model = sharded.get(),
            .replicas = axes_.replicas,
            .optimizer = &*optimizer,
            .average = &*average,
            .objects = {{"progress", &progress}}};
  }

  nn::Module& model() { return *model_; }

  // Of the same micro-batches, whatever the number of ranks.
  void train_step(int step) {
    compute_gradients(step);
    sharded->mark_active_segments();
    optimizer->step(sharded->chunks(), 1e-2, {});
    sharded->bump_epoch();
    average->update(sharded->chunks());
    progress.value = step + 1;
  }
  void compute_gradients(int step) {
    sharded->zero_grad();
    const int num_local = (kMicroBatches + world.size() - 1) / world.size();
    for (int i = 0; i < num_local; ++i) {
      sharded->set_is_last_backward(i + 1 == num_local);
      autograd::backward(loss_of(i * world.size() + world.rank(), step));
    }
  }

 private:
  static std::unique_ptr<models::Decoder> make_model(Mode mode) {
    if (mode == Mode::Tied) {
      return std::make_unique<models::Gpt2>(tiny_gpt2());
    }
    return std::make_unique<models::Llama>(tiny_llama(false));
  }
  static shard::ShardedModel::Options options_of(Mode mode, comm::ProcessGroup* replicas,
                                                 std::uint64_t seed) {
    shard::ShardedModel::Options options{
        .seed = seed, .replicas = replicas, .accumulation = shard::Accumulation::Exact};
    if (mode == Mode::Float64) {
      options.dtype = DType::Float64;
    }
    if (mode == Mode::Frozen || mode == Mode::MixedDTypes) {
      options.rules.push_back({.pattern = "*norm*", .trainable = false});
    }
    if (mode == Mode::MixedDTypes) {
      options.rules.push_back({.pattern = "*.1.*", .trainable = false, .dtype = DType::BFloat16});
    }
    return options;
  }
  Tensor loss_of(int micro_batch, int step) {
    if (micro_batch < kMicroBatches) {
      return tiny_loss(*model_, micro_batch, step, ops::HeadForm::GradientInForward);
    }
    const Tensor targets = Tensor::full({2, 9}, kIgnoredTarget, DType::Int64);
    return model_->loss(models::one_document(tiny_tokens(kMicroBatches - 1, step)), targets,
                        {.loss_scale = 0.1, .form = ops::HeadForm::GradientInForward});
  }

 public:
  comm::World& world;

 private:
  DataParallelAxes axes_;
  std::unique_ptr<models::Decoder> model_;

 public:
  std::unique_ptr<shard::ShardedModel> sharded;
  std::optional<optim::AdamW> optimizer;
  std::optional<optim::WeightAverage> average;
  Notes progress{checkpoint::Stateful::Kind::Replicated};
};

// All values of a program, put together from its ranks by what sharding has for it, which knows
// nothing of checkpoints. Collective; on rank 0.
inline Values all_state_of(CheckpointRun& run) {
  Values values;
  const auto gather = [&](const shard::ParameterPart& part, const Tensor& chunk,
                          const std::string& name) {
    if (part.shape.numel() > 0) {
      const Tensor whole = shard::gather_to(0, part, chunk, run.sharded->ranks());
      if (whole.defined()) {
        values[name + " " + part.name] = whole.to_vector();
      }
    }
  };
  for (const shard::ParameterPart& part : shard::parts_of(*run.sharded)) {
    gather(part, part.chunk, "parameters");
    if (part.chunk_number) {
      gather(part, run.average->values(*part.chunk_number), "average");
      for (const optim::State& state : run.optimizer->states()) {
        if (state.chunk == *part.chunk_number) {
          gather(part, state.values, state.name);
        }
      }
    }
  }
  for (const nn::FlatChunk& chunk : run.sharded->chunks()) {
    for (const nn::Segment& segment : chunk.segments) {
      values["step " + segment.name] = {static_cast<double>(segment.step)};
    }
  }
  values["progress"] = {run.progress.value.is_null() ? -1 : run.progress.value.get<double>()};
  return values;
}

// The same without counts of updates, of which each rank has some.
inline Values without_steps(Values values) {
  std::erase_if(values, [](const auto& entry) { return entry.first.starts_with("step "); });
  return values;
}

}  // namespace fsdptrain::testing
