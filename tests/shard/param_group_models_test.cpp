#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "shard/param_group.h"
#include "tests/support/sharded_net.h"

namespace fsdptrain::testing {
namespace {

constexpr std::int64_t kVocab = 61;

models::Gpt2Config gpt2_config() {
  return {.vocab_size = kVocab,
          .max_seq_len = 12,
          .num_layers = 2,
          .num_heads = 3,
          .embed_dim = 12,
          .dropout = 0.1};
}

models::LlamaConfig llama_config(bool tied) {
  models::LlamaConfig config;
  config.vocab_size = kVocab;
  config.max_seq_len = 12;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.embed_dim = 12;
  config.head_dim = 6;
  config.ffn_dim = 20;
  config.tie_embeddings = tied;
  return config;
}

Tensor tokens_of(int rank, int step) {
  const Tensor tokens = Tensor::empty({2, 9}, DType::Int64);
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    const auto key = static_cast<std::uint64_t>(10 * step + rank);
    tokens.mutable_values<std::int64_t>()[static_cast<std::size_t>(i)] =
        philox(static_cast<std::uint64_t>(i), key, 4).word[0] % kVocab;
  }
  return tokens;
}

template <ops::HeadForm form>
struct DecoderLoss {
  Tensor operator()(models::Decoder& model, int rank, int step, DType /*dtype*/) const {
    RandomKeys& random = current_context().random;
    random.step = static_cast<std::uint64_t>(step);
    random.first_sample = static_cast<std::uint64_t>(2 * rank);
    return model.loss(models::one_document(tokens_of(rank, step)), tokens_of(rank, step + 50),
                      {.loss_scale = 0.1, .form = form});
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
      check_bits<models::Gpt2>(gpt2_config(), recompute);
    }
  }

  TEST_CASE("a head that computes its gradient in the forward has the gradients of one rank") {
    constexpr auto kForm = ops::HeadForm::GradientInForward;
    check_bits<models::Gpt2, kForm>(gpt2_config(), nn::Recompute::None);
    check_bits<models::Llama, kForm>(llama_config(true), nn::Recompute::Full);
  }

  TEST_CASE("Llama, whose adjacent parameters are multiplied as one, has those of one rank") {
    for (const bool tied : {false, true}) {
      CAPTURE(tied);
      check_bits<models::Llama>(llama_config(tied), nn::Recompute::None);
      check_bits<models::Llama>(llama_config(tied), nn::Recompute::None,
                                {.param_dtype = DType::BFloat16});
    }
  }

  TEST_CASE("groups of blocks within a group of the rest have the gradients of one rank") {
    constexpr auto kForm = ops::HeadForm::GradientInForward;
    for (const nn::Recompute recompute : {nn::Recompute::None, nn::Recompute::Full}) {
      CAPTURE(static_cast<int>(recompute));
      check_groups<models::Gpt2>(gpt2_config(), recompute, "h.");
      check_groups<models::Gpt2, kForm>(gpt2_config(), recompute, "h.");
      check_groups<models::Llama>(llama_config(false), recompute, "model.layers.");
      check_groups<models::Llama, kForm>(llama_config(true), recompute, "model.layers.");
    }
  }
}

}  // namespace fsdptrain::testing
