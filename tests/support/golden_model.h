#pragma once

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "models/common/decoder.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/optim/adamw.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/golden.h"
#include "tests/support/max_or_nan.h"

// Decoders beside PyTorch's, by files of one layout (tests/golden/README.md).
namespace fsdptrain::testing {

// A model with the weights of a file.
template <class Model>
struct GoldenModel {
  template <class Config>
  GoldenModel(const Config& config, const Golden& weights, DType dtype,
              nn::Recompute recompute = nn::Recompute::None)
      : model(config), parameters(model, {.dtype = dtype}) {
    model.set_block_recompute(recompute);
    for (const auto& parameter : parameters.named()) {
      const Tensor values = weights.tensor("param." + parameter.name);
      REQUIRE(values.dtype() == dtype);
      REQUIRE(values.shape() == parameter.values.shape());
      std::memcpy(parameter.values.mutable_bytes().data(), values.bytes().data(),
                  values.bytes().size());
    }
    parameters.bump_epoch();
  }

  Model model;
  FlatParameters parameters;
};

inline double one_over_targets(const Tensor& targets) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    count += targets.item(i) != kIgnoredTarget;
  }
  return 1.0 / static_cast<double>(count);
}

// The rows of a file, where `prefix` is "" or "batch.3.".
inline models::TokenRows golden_rows(const Golden& golden, const std::string& prefix,
                                     bool has_documents) {
  const Tensor tokens = golden.tensor(prefix + "tokens");
  return has_documents ? models::TokenRows{tokens, golden.tensor(prefix + "positions"),
                                           golden.tensor(prefix + "documents")}
                       : models::one_document(tokens);
}

// How far results may be off: of their own size, and gradients besides of the whole model's.
struct Tolerance {
  double relative = 0;
  double of_the_model = 0;
};

inline Tolerance tolerance_of(DType dtype) {
  return dtype == DType::Float64 ? Tolerance{1e-12, 1e-15} : Tolerance{1e-5, 1e-7};
}

inline void compare_gradients(const FlatParameters& parameters, const Golden& golden, DType dtype) {
  const auto [relative, of_the_model] = tolerance_of(dtype);
  double model_norm = 0;
  double model_max = 0;
  for (const auto& parameter : parameters.named()) {
    const Tensor expected = golden.tensor("grad." + parameter.name);
    model_norm = std::hypot(model_norm, norm(expected));
    model_max = max_or_nan(model_max, max_abs(expected));
  }
  for (const auto& parameter : parameters.named()) {
    CAPTURE(parameter.name);
    const Tensor expected = golden.tensor("grad." + parameter.name);
    REQUIRE(parameter.gradient.shape() == expected.shape());
    if (dtype == DType::Float64) {
      CHECK(norm_of_difference(parameter.gradient, expected) <=
            relative * norm(expected) + of_the_model * model_norm);
    } else {
      CHECK(max_difference(parameter.gradient, expected) <=
            relative * max_abs(expected) + of_the_model * model_max);
    }
  }
}

// Logits, loss and every gradient against a file, in both forms of the head.
template <class Model, class Config>
void compare_with_pytorch(const Config& config, const Golden& weights, const Golden& golden,
                          bool has_documents, DType dtype,
                          nn::Recompute recompute = nn::Recompute::None) {
  const models::TokenRows rows = golden_rows(golden, "", has_documents);
  const Tensor targets = golden.tensor("targets");
  const double relative = tolerance_of(dtype).relative;
  for (const ops::HeadForm form : {ops::HeadForm::Recompute, ops::HeadForm::GradientInForward}) {
    GoldenModel<Model> ours(config, weights, dtype, recompute);
    {
      const autograd::NoGradGuard no_grad;
      const Tensor logits = ours.model.logits(rows);
      const Tensor expected = golden.tensor("logits");
      REQUIRE(logits.shape() == expected.shape());
      CHECK(max_difference(logits, expected) <= relative * max_abs(expected));
    }
    const Tensor loss =
        ours.model.loss(rows, targets, {.loss_scale = one_over_targets(targets), .form = form});
    CHECK(loss.item() == doctest::Approx(golden.tensor("loss").item()).epsilon(relative));
    autograd::backward(loss);
    compare_gradients(ours.parameters, golden, dtype);
  }
}

// The norm of every parameter after the last step, within 1e-9 of it. The gradient of the keys'
// biases is zero but for rounding, some 1e-17, which is not the same rounding here and there: Adam
// divides it by eps = 1e-8 and takes lr = 1e-2 of that, at most 5e-10 in fifty steps.
inline void compare_final_norms(const FlatParameters& parameters, const Golden& golden) {
  const Tensor expected = golden.tensor("final_param_norms");
  std::istringstream names(golden.text("parameter_order"));
  std::int64_t index = 0;
  for (std::string name; std::getline(names, name, ','); ++index) {
    CAPTURE(name);
    REQUIRE(index < expected.numel());
    const double want = expected.item(index);
    CHECK(std::abs(norm(parameters.find(name).values) - want) <= 1e-9 * want);
  }
  CHECK(index == expected.numel());
  CHECK(parameters.named().size() == static_cast<std::size_t>(index));
}

// Fifty AdamW steps in float64: every loss within 1e-9, and the norms of the parameters at the end.
template <class Model, class Config>
void follow_adamw(const Config& config, const Golden& weights, const Golden& golden,
                  bool has_documents) {
  GoldenModel<Model> ours(config, weights, DType::Float64);
  auto& parameters = ours.parameters;
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
    const std::string batch = "batch." + std::to_string(step % cycle) + ".";
    const Tensor targets = golden.tensor(batch + "targets");
    parameters.zero_grad();
    const Tensor loss = ours.model.loss(
        golden_rows(golden, batch, has_documents), targets,
        {.loss_scale = one_over_targets(targets), .form = ops::HeadForm::GradientInForward});
    CHECK(std::abs(loss.item() - losses.item(step)) <= 1e-9);
    autograd::backward(loss);
    parameters.mark_active_segments();
    optimizer.step(parameters.chunks(), golden.number("lr"), {});
    parameters.bump_epoch();
  }
  compare_final_norms(parameters, golden);
}

}  // namespace fsdptrain::testing
