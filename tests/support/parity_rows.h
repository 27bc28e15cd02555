#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "models/parallelize.h"
#include "tests/support/covering_array.h"
#include "tests/support/sharded_net.h"
#include "tests/support/tiny_decoders.h"

// Sharded decoders and the same on one rank, by rows of options.
namespace fsdptrain::testing {

enum class Passes { One, MicroBatches, WithoutSync, TwoForwards, Retained };

inline constexpr const char* kPasses[] = {"one", "micro-batches", "micro-batches without sync",
                                          "two forwards", "retained graph"};

// One row of the array.
struct Row {
  explicit Row(const CoveringArray::Row& levels)
      : model(levels[0]),
        num_ranks(levels[1] + 1),
        reshard(levels[2]),
        prefetch(levels[3]),
        recompute(static_cast<nn::Recompute>(levels[4])),
        dtype(levels[5]),
        passes(static_cast<Passes>(levels[6])),
        frozen(levels[7]),
        head(levels[8]) {}

  std::string text() const {
    return fmt::format(
        "model {} ranks {} reshard {} prefetch {} recompute {} dtype {} passes {} "
        "frozen {} head {}",
        model, num_ranks, reshard, prefetch, static_cast<int>(recompute), dtype,
        kPasses[static_cast<int>(passes)], frozen, head);
  }

  std::unique_ptr<models::Decoder> make_model() const {
    if (model == 0) {
      return std::make_unique<models::Gpt2>(tiny_gpt2());
    }
    return std::make_unique<models::Llama>(tiny_llama(model == 1));
  }
  DType original() const { return dtype == 0 ? DType::Float64 : DType::Float32; }
  std::optional<DType> compute() const {
    return dtype == 2 ? std::optional(DType::BFloat16) : std::nullopt;
  }
  std::vector<nn::ParameterRule> rules() const {
    if (frozen == 1) {
      return {{.pattern = model == 0 ? "*.bias" : "*norm*", .trainable = false}};
    }
    if (frozen == 2) {
      return {{.pattern = model == 0 ? "h.1.*" : "model.layers.1.*", .trainable = false}};
    }
    return {};
  }
  // Gradients that are computed in the forward are for one backward of one forward.
  ops::HeadForm form() const {
    const bool may = passes != Passes::TwoForwards && passes != Passes::Retained;
    return may && head == 1 ? ops::HeadForm::GradientInForward : ops::HeadForm::Recompute;
  }
  int num_batches() const { return passes == Passes::One ? 1 : 2; }

  int model;
  int num_ranks;
  int reshard;
  int prefetch;
  nn::Recompute recompute;
  int dtype;
  Passes passes;
  int frozen;
  int head;
};

// Every two options are together in some row. `most_ranks` 1: rows leave their number to the
// caller.
inline CoveringArray all_pairs(int most_ranks) {
  return CoveringArray({3, most_ranks, 3, 3, 3, 3, 5, 3, 2});
}

// One rank that has the whole model.
class Whole {
 public:
  explicit Whole(const Row& row)
      : row_(row),
        model_(row.make_model()),
        owner_(*model_, {.dtype = row.original(),
                         .compute_dtype = row.compute(),
                         .seed = 5,
                         .rules = row.rules()}) {
    model_->set_block_recompute(row.recompute);
  }

  Values gradients_of(int rank, int batch) {
    owner_.zero_grad();
    autograd::backward(tiny_loss(*model_, rank, batch, row_.form()));
    owner_.mark_active_segments();
    Values gradients;
    for (const nn::Segment& segment : owner_.chunks()[0].segments) {
      if (segment.active) {
        gradients[segment.name] = owner_.find(segment.name).gradient.to_vector();
      }
    }
    return gradients;
  }

  Values gradients_of_step(int step) {
    Values total;
    for (int i = 0; i < row_.num_batches(); ++i) {
      // A retained graph is that of one batch.
      const int batch = 2 * step + (row_.passes == Passes::Retained ? 0 : i);
      std::vector<Values> of_ranks;
      for (int rank = 0; rank < row_.num_ranks; ++rank) {
        of_ranks.push_back(gradients_of(rank, batch));
      }
      const Values sum = tree_sum(of_ranks, row_.original());
      for (const auto& [name, values] : sum) {
        total[name] = i == 0 ? values : added(total[name], values, row_.original());
      }
    }
    return total;
  }

  std::int64_t num_trained() {
    std::int64_t numel = 0;
    for (const nn::Segment& segment : owner_.chunks()[0].segments) {
      numel += segment.end - segment.begin;
    }
    return numel;
  }

 private:
  const Row& row_;
  std::unique_ptr<models::Decoder> model_;
  FlatParameters owner_;
};

// A rank's part of the same.
class Part {
 public:
  Part(const Row& row, comm::World& world)
      : row_(row),
        rank_(world.rank()),
        device_(world.group().device()),
        model_(row.make_model()),
        sharded_(
            *model_, world.group(),
            {.dtype = row.original(), .seed = 5, .rules = row.rules(), .prefetch = row.prefetch}) {
    shard::ShardedUnit::Options options{.policy = {.param_dtype = row.compute()},
                                        .gradient_divide_factor = 1};
    if (row.reshard > 0) {
      options.reshard_after_forward = row.reshard == 1;
    }
    units_ = models::parallelize(*model_, sharded_, options);
    model_->set_block_recompute(row.recompute);
  }

  void step(int step) {
    sharded_.zero_grad();
    const auto loss = [&](int i) {
      return tiny_loss(*model_, rank_, 2 * step + i, row_.form(), device_);
    };
    switch (row_.passes) {
      case Passes::One:
        autograd::backward(loss(0));
        return;
      case Passes::WithoutSync:
        units_.root->set_requires_gradient_sync(false);
        autograd::backward(loss(0));
        units_.root->set_requires_gradient_sync(true);
        autograd::backward(loss(1));
        return;
      case Passes::MicroBatches:
        autograd::backward(loss(0));
        autograd::backward(loss(1));
        return;
      case Passes::TwoForwards: {
        const Tensor first = loss(0);
        autograd::backward(ops::add(first, loss(1)));
        return;
      }
      case Passes::Retained: {
        const Tensor once = loss(0);
        autograd::backward(once, {.grad_output = {}, .retain_graph = true});
        autograd::backward(once);
        return;
      }
    }
  }

  void expect_gradients(const Values& expected, comm::World& world, std::int64_t num_trained) {
    double largest = 0;
    for (const auto& [name, values] : expected) {
      for (const double value : values) {
        largest = std::max(largest, std::abs(value));
      }
    }
    // Micro-batches are added before ranks are, or in the products that compute them.
    const bool in_order =
        row_.passes == Passes::One || (row_.passes != Passes::WithoutSync && row_.num_ranks > 1);
    double bound = in_order ? 0 : 1e-5 * largest;
    if (row_.original() == DType::Float64) {
      bound = 1e-12 * largest;
    }
    std::int64_t numel = 0;
    for (const auto& unit : sharded_.units()) {
      const Difference found = difference_of(unit->group(), rank_, Of::Gradients, expected);
      CHECK_MESSAGE(found.largest <= bound, unit->name());
      numel += found.numel;
      CHECK_FALSE(unit->group().unsharded());
    }
    CHECK(largest > 1e-3);
    CHECK(sum_over_ranks(world, numel) == num_trained);
  }

  // What this rank has of each buffer of each unit.
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> gradients;
    for (const auto& unit : sharded_.units()) {
      for (const shard::FlatBuffer& buffer : unit->group().buffers()) {
        const Tensor& chunk = buffer.gradients();
        gradients.push_back(chunk.defined() ? chunk.to_vector() : std::vector<double>());
      }
    }
    return gradients;
  }

  const shard::SlotPool& pool() const { return sharded_.pool(); }

 private:
  const Row& row_;
  int rank_;
  Device device_;
  std::unique_ptr<models::Decoder> model_;
  shard::ShardedModel sharded_;
  models::ShardedDecoder units_;
};

}  // namespace fsdptrain::testing
