#include <cstring>

#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/nn/flat_parameters.h"
#include "runtime/optim/adamw.h"
#include "tests/support/golden.h"

using namespace fsdptrain;
using fsdptrain::testing::Golden;

namespace {

models::Gpt2Config golden_config(const Golden& golden) {
  models::Gpt2Config config;
  config.vocab_size = golden.integer("vocab_size");
  config.max_seq_len = golden.integer("n_positions");
  config.embed_dim = golden.integer("n_embd");
  config.num_layers = golden.integer("n_layer");
  config.num_heads = golden.integer("n_head");
  config.norm_eps = golden.number("layer_norm_epsilon");
  return config;
}

// A model with the fixture's weights.
struct GoldenModel {
  GoldenModel(const Golden& golden, DType dtype)
      : model(golden_config(golden)), parameters(model, {.dtype = dtype}) {
    for (const auto& parameter : parameters.named()) {
      const Tensor values = golden.tensor("param." + parameter.name);
      REQUIRE(values.dtype() == dtype);
      REQUIRE(values.shape() == parameter.values.shape());
      std::memcpy(parameter.values.mutable_bytes().data(), values.bytes().data(),
                  values.bytes().size());
    }
    parameters.bump_epoch();
  }

  models::Gpt2 model;
  nn::FlatParameters parameters;
};

std::int64_t count_targets(const Tensor& targets) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    count += targets.item(i) != kIgnoredTarget;
  }
  return count;
}

// Logits, loss and every gradient against the fixture, in both forms of the head.
void compare_with_pytorch(const std::string& file, DType dtype, double relative,
                          double of_the_model) {
  const Golden golden(file);
  const Tensor tokens = golden.tensor("tokens");
  const Tensor targets = golden.tensor("targets");
  const double scale = 1.0 / static_cast<double>(count_targets(targets));
  for (const ops::HeadForm form : {ops::HeadForm::Recompute, ops::HeadForm::GradientInForward}) {
    GoldenModel golden_model(golden, dtype);
    {
      const autograd::NoGradGuard no_grad;
      const Tensor logits = golden_model.model.logits(models::one_document(tokens));
      const Tensor expected = golden.tensor("logits");
      REQUIRE(logits.shape() == expected.shape());
      CHECK(testing::max_difference(logits, expected) <= relative * testing::max_abs(expected));
    }
    const Tensor loss = golden_model.model.loss(models::one_document(tokens), targets,
                                                {.loss_scale = scale, .form = form});
    CHECK(loss.item() == doctest::Approx(golden.tensor("loss").item()).epsilon(relative));

    autograd::backward(loss);
    double model_norm = 0;
    double model_max = 0;
    for (const auto& parameter : golden_model.parameters.named()) {
      const Tensor expected = golden.tensor("grad." + parameter.name);
      model_norm = std::hypot(model_norm, testing::norm(expected));
      model_max = std::max(model_max, testing::max_abs(expected));
    }
    int compared = 0;
    for (const auto& parameter : golden_model.parameters.named()) {
      CAPTURE(parameter.name);
      const Tensor expected = golden.tensor("grad." + parameter.name);
      if (dtype == DType::Float64) {
        CHECK(testing::norm_of_difference(parameter.gradient, expected) <=
              relative * testing::norm(expected) + of_the_model * model_norm);
      } else {
        CHECK(testing::max_difference(parameter.gradient, expected) <=
              relative * testing::max_abs(expected) + of_the_model * model_max);
      }
      ++compared;
    }
    CHECK(compared == 28);
  }
}

}  // namespace

TEST_SUITE("models/gpt2") {
  TEST_CASE("logits, loss and every gradient equal PyTorch's in float64") {
    compare_with_pytorch("gpt2_tiny.float64.safetensors", DType::Float64, 1e-12, 1e-15);
  }

  TEST_CASE("logits, loss and every gradient equal PyTorch's in float32") {
    compare_with_pytorch("gpt2_tiny.float32.safetensors", DType::Float32, 1e-5, 1e-7);
  }

  TEST_CASE("fifty AdamW steps in float64 follow PyTorch's losses") {
    const Golden initial("gpt2_tiny.float64.safetensors");
    const Golden golden("gpt2_tiny.adamw.safetensors");
    GoldenModel golden_model(initial, DType::Float64);
    auto& parameters = golden_model.parameters;
    for (nn::Segment& segment : parameters.chunks().front().segments) {
      const bool is_matrix = parameters.find(segment.name).values.dims() >= 2;
      CHECK(segment.decay == is_matrix);
    }
    optim::AdamW optimizer(parameters.chunks(), {.beta1 = golden.number("beta1"),
                                                 .beta2 = golden.number("beta2"),
                                                 .eps = golden.number("eps"),
                                                 .weight_decay = golden.number("weight_decay")});
    const Tensor losses = golden.tensor("losses");
    const std::int64_t cycle = golden.integer("num_batches");
    REQUIRE(losses.numel() == 50);
    for (std::int64_t step = 0; step < losses.numel(); ++step) {
      CAPTURE(step);
      const std::string batch = "batch." + std::to_string(step % cycle);
      const Tensor targets = golden.tensor(batch + ".targets");
      parameters.zero_grad();
      const Tensor loss =
          golden_model.model.loss(models::one_document(golden.tensor(batch + ".tokens")), targets,
                                  {.loss_scale = 1.0 / static_cast<double>(count_targets(targets)),
                                   .form = ops::HeadForm::GradientInForward});
      CHECK(std::abs(loss.item() - losses.item(step)) <= 1e-9);
      autograd::backward(loss);
      parameters.mark_active_segments();
      optimizer.step(parameters.chunks(), golden.number("lr"), {});
      parameters.bump_epoch();
    }
  }

  TEST_CASE("the published sizes have the published numbers of parameters") {
    const auto count = [](const char* name) {
      models::Gpt2 model(*models::gpt2_preset(name));
      std::int64_t numel = 0;
      for (const nn::Parameter& parameter : model.parameters()) {
        numel += parameter.tensor->numel();
      }
      return numel;
    };
    CHECK(count("gpt2-124m") == 124439808);
    CHECK(count("gpt2-350m") == 354823168);
    CHECK(count("gpt2-774m") == 774030080);
    CHECK(count("gpt2-1558m") == 1557611200);
    CHECK_FALSE(models::gpt2_preset("gpt2-7b").has_value());
  }

  TEST_CASE("sizes that do not fit are refused by name") {
    models::Gpt2Config config;
    config.num_heads = 7;
    CHECK_THROWS_WITH_AS(
        models::Gpt2{config},
        doctest::Contains("embed_dim must be a multiple of num_heads, got 768 and 7"), ConfigError);
    config = {};
    config.num_layers = 0;
    CHECK_THROWS_WITH_AS(models::Gpt2{config}, doctest::Contains("num_layers must be positive"),
                         ConfigError);
  }

  TEST_CASE("more positions than the model has, or a token beyond the vocabulary, is an error") {
    const Golden golden("gpt2_tiny.float32.safetensors");
    GoldenModel golden_model(golden, DType::Float32);
    CHECK_THROWS_WITH_AS(
        golden_model.model.logits(models::one_document(Tensor::zeros({1, 25}, DType::Int64))),
        doctest::Contains("at most 24 positions], got [1, 25]"), ShapeError);
    CHECK_THROWS_WITH_AS(
        golden_model.model.logits(models::one_document(Tensor::full({1, 3}, 61, DType::Int64))),
        doctest::Contains("wte: embedding"), ShapeError);
  }
}
