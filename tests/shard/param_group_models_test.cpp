#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "shard/param_group.h"
#include "tests/support/sharded_net.h"
#include "tests/support/tiny_decoders.h"

namespace fsdptrain::testing {
namespace {

template <ops::HeadForm form>
struct DecoderLoss {
  Tensor operator()(models::Decoder& model, int rank, int step, DType /*dtype*/) const {
    return tiny_loss(model, rank, step, form);
  }
};

// One group of the whole model on 1, 2 and 3 ranks equals one rank.
template <class Model, ops::HeadForm head = ops::HeadForm::Recompute, class Config>
void check_bits(const Config& config, nn::Recompute recompute,
                const shard::MixedPrecisionPolicy& policy = {}) {
  using Loss = DecoderLoss<head>;
  on_ranks([&](comm::World& world) {
    Sharded<Model, Loss> sharded(world, {.policy = policy, .gradient_divide_factor = 1, .seed = 5},
                                 config);
    Unsharded<Model, Loss> whole({.compute_dtype = policy.param_dtype, .seed = 5}, config);
    sharded.net.set_block_recompute(recompute);
    whole.model().set_block_recompute(recompute);
    const Values expected = whole.sum_of_gradients(world.size(), 0);
    // The second backward begins where the first one left the group.
    for (int i = 0; i < 2; ++i) {
      CAPTURE(i);
      sharded.group.zero_grad();
      autograd::backward(sharded.loss(0));
      const Difference found = difference(sharded, Of::Gradients, expected);
      CHECK(found.largest == 0);
      CHECK(sum_over_ranks(world, found.numel) == whole.owner().num_parameters());
    }
  });
}

// A group for each block and one for the rest, as a model is sharded.
std::vector<std::unique_ptr<shard::ParamGroup>> groups_of(models::Decoder& model,
                                                          comm::ProcessGroup& ranks,
                                                          const std::string& path_of_blocks,
                                                          GroupContext& of) {
  std::vector<std::unique_ptr<shard::ParamGroup>> groups;
  const auto add = [&](nn::Module& module, const std::string& path) {
    const auto group = static_cast<std::uint32_t>(groups.size());
    groups.push_back(std::make_unique<shard::ParamGroup>(
        members_of(module, path), ranks, of.pool, of.context,
        shard::ParamGroup::Options{
            .gradient_divide_factor = 1, .seed = 5, .tag = {.group = group}}));
  };
  for (nn::Module* const block : model.blocks()) {
    add(*block, fmt::format("{}{}.", path_of_blocks, groups.size()));
  }
  add(model, "");
  return groups;
}

// Groups of blocks on 1, 2 and 3 ranks equal one rank, step after step.
template <class Model, ops::HeadForm head = ops::HeadForm::Recompute, class Config>
void check_groups(const Config& config, nn::Recompute recompute,
                  const std::string& path_of_blocks) {
  using Loss = DecoderLoss<head>;
  on_ranks([&](comm::World& world) {
    Model model(config);
    GroupContext context(world.group());
    const auto groups = groups_of(model, world.group(), path_of_blocks, context);
    Unsharded<Model, Loss> whole({.seed = 5}, config);
    model.set_block_recompute(recompute);
    whole.model().set_block_recompute(recompute);
    for (int step = 0; step < 3; ++step) {
      CAPTURE(step);
      autograd::backward(Loss{}(model, world.rank(), step, DType::Float32));
      const Values expected = whole.sum_of_gradients(world.size(), step);
      std::int64_t numel = 0;
      for (const auto& group : groups) {
        const Difference found = difference_of(*group, world.rank(), Of::Gradients, expected);
        CHECK(found.largest == 0);
        numel += found.numel;
        CHECK_FALSE(group->unsharded());
        group->zero_grad();
      }
      CHECK(sum_over_ranks(world, numel) == whole.owner().num_parameters());
      context.pool.end_step();
    }
    CHECK(context.pool.num_unplanned() == 0);
  });
}

}  // namespace

TEST_SUITE("shard/param_group of models") {
  TEST_CASE("GPT-2 has the gradients of one rank, bit for bit") {
    for (const nn::Recompute recompute :
         {nn::Recompute::None, nn::Recompute::Selective, nn::Recompute::Full}) {
      CAPTURE(static_cast<int>(recompute));
      check_bits<models::Gpt2>(tiny_gpt2(), recompute);
    }
  }

  TEST_CASE("a head that computes its gradient in the forward has the gradients of one rank") {
    constexpr auto kForm = ops::HeadForm::GradientInForward;
    check_bits<models::Gpt2, kForm>(tiny_gpt2(), nn::Recompute::None);
    check_bits<models::Llama, kForm>(tiny_llama(true), nn::Recompute::Full);
  }

  TEST_CASE("Llama, whose adjacent parameters are multiplied as one, has those of one rank") {
    for (const bool tied : {false, true}) {
      CAPTURE(tied);
      check_bits<models::Llama>(tiny_llama(tied), nn::Recompute::None);
      check_bits<models::Llama>(tiny_llama(tied), nn::Recompute::None,
                                {.param_dtype = DType::BFloat16});
    }
  }

  TEST_CASE("groups of blocks within a group of the rest have the gradients of one rank") {
    constexpr auto kForm = ops::HeadForm::GradientInForward;
    for (const nn::Recompute recompute : {nn::Recompute::None, nn::Recompute::Full}) {
      CAPTURE(static_cast<int>(recompute));
      check_groups<models::Gpt2>(tiny_gpt2(), recompute, "h.");
      check_groups<models::Gpt2, kForm>(tiny_gpt2(), recompute, "h.");
      check_groups<models::Llama>(tiny_llama(false), recompute, "model.layers.");
      check_groups<models::Llama, kForm>(tiny_llama(true), recompute, "model.layers.");
    }
  }
}

}  // namespace fsdptrain::testing
