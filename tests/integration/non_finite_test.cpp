#include "tools/train/non_finite.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/tensor/views.h"
#include "tests/support/gpt2_run.h"

using namespace fsdptrain;
using autograd::Direction;
using autograd::Gradients;
using autograd::GradientSink;
using autograd::ValueRole;
using testing::Gpt2Run;
using testing::tiny_gpt2;
using tools::NonFinite;
using tools::random_batch;

namespace {

using Indices = std::vector<std::int64_t>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr nn::Recompute kPolicies[] = {nn::Recompute::None, nn::Recompute::Selective,
                                       nn::Recompute::Full};

// Three micro-batches: samples 40 and 41, 42 to 44, 45.
std::vector<data::Batch> micro_batches() {
  return {random_batch(2, 13, 101, 40), random_batch(3, 13, 101, 42), random_batch(1, 13, 101, 45)};
}

Tensor with_nan(const Tensor& x, std::int64_t at) {
  Tensor copy = Tensor::from<float>(x.values<float>(), x.shape());
  copy.set_item(at, kNaN);
  return copy;
}

// An op behind a module that makes a NaN of element `at` in the micro-batch that begins with
// `first_sample`: of its output, or of its gradient.
struct Plant {
  std::uint64_t first_sample;
  std::int64_t at;
  bool in_backward;

  Tensor operator()(const Tensor& x) const {
    const bool here = current_context().random.first_sample == first_sample;
    const bool forward = here && !in_backward;
    const bool backward = here && in_backward;
    return autograd::record("planted", forward ? with_nan(x, at) : x.detach(), {x},
                            [backward, at = at](const Tensor& dy, GradientSink&) -> Gradients {
                              return {backward ? with_nan(dy, at) : dy};
                            });
  }
};

void plant(nn::Module& module, const Plant& planted) {
  module.add_hooks({.pre_forward = {}, .post_forward = [planted](nn::Module::Tensors& outputs) {
                      outputs[0] = planted(outputs[0]);
                    }});
}

bool is_finite(const tools::TrainStep::Result& result) {
  return std::isfinite(result.loss.item()) && std::isfinite(result.grad_norm.item());
}

NonFinite located(Gpt2Run& run, std::uint64_t step = 7) {
  const auto batches = micro_batches();
  REQUIRE_FALSE(is_finite(run.step.forward_backward(batches, step)));
  const auto found = tools::locate_non_finite(run.step, tools::whole_step(batches), step);
  REQUIRE(found.has_value());
  return *found;
}

void set_parameter(Gpt2Run& run, const std::string& name, double value, std::int64_t at = -1) {
  Tensor values = testing::values_of(*run.sharded, name);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    if (at < 0 || i == at) {
      values.set_item(i, value);
    }
  }
  run.sharded->bump_epoch();
}

std::vector<double> everything(Gpt2Run& run) {
  std::vector<double> values = testing::all_values(*run.sharded);
  for (const auto& state : run.optimizer.states()) {
    const auto more = state.values.to_vector();
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

}  // namespace

TEST_SUITE("integration/non_finite") {
  TEST_CASE("a NaN of an op or of its gradient is located in any block, under any recomputation") {
    for (const nn::Recompute policy : kPolicies) {
      for (const std::size_t block : {std::size_t{0}, std::size_t{1}}) {
        for (const bool in_backward : {false, true}) {
          CAPTURE(static_cast<int>(policy));
          CAPTURE(block);
          CAPTURE(in_backward);
          Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32, policy);
          // Row 1 of micro-batch 1, position 3, feature 5.
          const std::int64_t at = (1 * 13 + 3) * 48 + 5;
          plant(*run.model.blocks()[block],
                {.first_sample = 42, .at = at, .in_backward = in_backward});
          const NonFinite found = located(run);
          CHECK(found.step == 7);
          CHECK(found.micro_batch == 1);
          CHECK(found.first_sample == 42);
          CHECK(found.num_samples == 3);
          CHECK(found.rows == Indices{1});
          CHECK(found.module == "h." + std::to_string(block));
          CHECK(found.op == "planted");
          CHECK(found.direction == (in_backward ? Direction::Backward : Direction::Forward));
          CHECK(found.role == (in_backward ? ValueRole::InputGradient : ValueRole::Output));
          CHECK(found.input == (in_backward ? 0 : -1));
          CHECK(std::isnan(found.value));
          CHECK(found.index == Indices{1, 3, 5});
          CHECK(found.largest_before > 1);
          CHECK(found.largest_before < 100);
          CHECK_THROWS_WITH_AS(run.step.update(1e-3),
                               doctest::Contains("an update needs the gradients"), Error);
        }
      }
    }
  }

  TEST_CASE("a parameter that is not finite is located where it is read first") {
    struct Case {
      const char* parameter;
      const char* module;
      const char* op;
    };
    for (const Case& planted : {Case{"wte.weight", "wte", "embedding"},
                                Case{"h.0.attn.c_attn.weight", "h.0.attn.c_attn", "linear"},
                                Case{"h.1.mlp.c_fc.bias", "h.1.mlp.c_fc", "linear"},
                                Case{"h.1.ln_2.weight", "h.1.ln_2", "add_layer_norm"},
                                Case{"ln_f.bias", "ln_f", "layer_norm"}}) {
      for (const nn::Recompute policy : kPolicies) {
        CAPTURE(planted.parameter);
        CAPTURE(static_cast<int>(policy));
        Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32, policy);
        set_parameter(run, planted.parameter, -std::numeric_limits<double>::infinity(), 7);
        const NonFinite found = located(run);
        CHECK(found.micro_batch == 0);
        CHECK(found.rows.empty());
        CHECK(found.module == planted.module);
        CHECK(found.op == planted.op);
        CHECK(found.direction == Direction::Forward);
        CHECK(found.role == ValueRole::Leaf);
        CHECK(found.parameter == planted.parameter);
        CHECK(tools::kind_of(found.value) == "-inf");
        CHECK(found.index.back() == 7);
      }
    }
  }

  TEST_CASE("an overflow in bfloat16 is located, with the magnitude that led to it") {
    for (const char* block : {"h.0", "h.1"}) {
      for (const nn::Recompute policy : kPolicies) {
        CAPTURE(block);
        Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::BFloat16, policy);
        const std::string norm = std::string(block) + ".ln_1";
        // Normalised values above 0.13 give more than 3.4e38.
        set_parameter(run, norm + ".weight", 3e38);
        set_parameter(run, norm + ".bias", 3e38);
        const NonFinite found = located(run);
        CHECK(found.module == norm);
        CHECK(found.op == "layer_norm");
        CHECK(found.direction == Direction::Forward);
        CHECK(found.role == ValueRole::Output);
        CHECK(found.rows == Indices{0, 1});
        CHECK(tools::kind_of(found.value) == "inf");
        CHECK(found.largest_before > 2.9e38);
      }
    }
  }

  TEST_CASE("a weight that only its bfloat16 copy cannot hold is located as a parameter") {
    Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::BFloat16);
    set_parameter(run, "h.1.attn.c_proj.bias", 3.4e38, 2);
    const NonFinite found = located(run);
    CHECK(found.role == ValueRole::Leaf);
    CHECK(found.parameter == "h.1.attn.c_proj.bias");
    CHECK(found.index == Indices{2});
  }

  TEST_CASE("the step after one with a huge learning rate is located in its forward") {
    Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
    run.train(micro_batches(), 0, 1e30);
    const NonFinite found = located(run, 1);
    // Weights and embeddings of 1e30 are finite; the squares in the variance of their rows are not.
    CHECK(found.module == "h.0.ln_1");
    CHECK(found.op == "layer_norm");
    CHECK(found.direction == Direction::Forward);
    CHECK(found.role == ValueRole::Output);
    CHECK(found.micro_batch == 0);
    CHECK(found.rows == Indices{0, 1});
    CHECK(found.largest_before >= 0.9e30);
    CHECK(found.largest_before <= 3e30);
  }

  TEST_CASE("a step whose values are finite when it runs again is said to be so") {
    Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
    int runs = 0;
    run.model.blocks()[0]->add_hooks(
        {.pre_forward = {}, .post_forward = [&runs](nn::Module::Tensors& outputs) {
           if (runs++ == 0) {
             outputs[0] = with_nan(outputs[0], 0);
           }
         }});
    const auto batches = micro_batches();
    CHECK_FALSE(is_finite(run.step.forward_backward(batches, 3)));
    CHECK_FALSE(tools::locate_non_finite(run.step, tools::whole_step(batches), 3).has_value());
  }

  TEST_CASE("a step that is located and left out leaves no trace in weights, moments and results") {
    for (const nn::Recompute policy : kPolicies) {
      std::vector<std::vector<double>> results;
      for (const bool has_bad_step : {false, true}) {
        Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32, policy);
        plant(*run.model.blocks()[1], {.first_sample = 42, .at = 0, .in_backward = true});
        run.train(0, 2, 20);
        if (has_bad_step) {
          located(run, 1);
        }
        const auto result = run.train(2, 2, 20);
        results.push_back(everything(run));
        results.back().push_back(result.loss.item());
        results.back().push_back(result.grad_norm.item());
      }
      CHECK(results[0] == results[1]);
    }
  }

  TEST_CASE("a watch changes no bit of a step") {
    for (const nn::Recompute policy : kPolicies) {
      std::vector<std::vector<double>> results;
      std::int64_t shown = 0;
      for (const bool watched : {false, true}) {
        Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::BFloat16, policy);
        const auto step = [&run](std::uint64_t number) { return run.train(number, 2, 20); };
        step(0);
        tools::TrainStep::Result result;
        if (watched) {
          const autograd::WatchGuard guard([&shown](const auto&) { ++shown; });
          result = step(1);
        } else {
          result = step(1);
        }
        results.push_back(everything(run));
        results.back().push_back(result.loss.item());
      }
      CHECK(results[0] == results[1]);
      CHECK(shown > 100);
    }
  }

  TEST_CASE("a scan finds the first value in row-major order, whatever the strides and the dtype") {
    Tensor x = Tensor::zeros({2, 3, 5}, DType::Float64);
    CHECK_FALSE(tools::scan_values(x).non_finite.has_value());
    x.set_item(4, -9);
    x.set_item(17, kNaN);  // [1, 0, 2]
    x.set_item(28, HUGE_VAL);
    CHECK(tools::scan_values(x).index == Indices{1, 0, 2});
    CHECK(tools::scan_values(x).largest_magnitude == 9);
    const auto turned = tools::scan_values(views::transpose(x, 0, 2));
    CHECK(turned.index == Indices{2, 0, 1});
    CHECK(std::isnan(*turned.non_finite));
    CHECK(tools::scan_values(views::narrow(x, 2, 3, 1)).index == Indices{1, 2, 0});
    CHECK(*tools::scan_values(views::narrow(x, 2, 3, 1)).non_finite == HUGE_VAL);

    CHECK_FALSE(tools::scan_values(Tensor::zeros({0, 3})).non_finite.has_value());
    CHECK_FALSE(tools::scan_values(Tensor::zeros({3, 0})).non_finite.has_value());
    CHECK(tools::scan_values(Tensor::full({}, kNaN)).index.empty());
    CHECK(tools::scan_values(Tensor::full({}, kNaN)).non_finite.has_value());
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) {
      const tools::Scan scan = tools::scan_values(Tensor::of({1, -2, -HUGE_VAL}, dtype));
      CHECK(scan.index == Indices{2});
      CHECK(scan.non_finite == -HUGE_VAL);
      CHECK(scan.largest_magnitude == 2);
    }
  }

  TEST_CASE("what was found reads as a sentence") {
    NonFinite found;
    found.step = 11;
    found.micro_batch = 1;
    found.first_sample = 384;
    found.num_samples = 4;
    found.rows = {0, 3};
    found.module = "h.3.attn";
    found.op = "softmax";
    found.direction = Direction::Backward;
    found.role = ValueRole::InputGradient;
    found.input = 0;
    found.value = kNaN;
    found.index = {0, 2, 7};
    found.largest_before = 1234.5;
    CHECK(
        tools::describe(found) ==
        "step 12, micro-batch 1 (samples 384..387), backward of \"softmax\" in h.3.attn: gradient "
        "of input 0 has nan at [0, 2, 7], in samples 384, 387; the largest finite magnitude before "
        "it is 1.23e+03");
    found.rows.clear();
    found.module.clear();
    found.op.clear();
    found.parameter = "wte.weight";
    found.role = ValueRole::LeafGradient;
    found.value = -HUGE_VAL;
    found.index = {5};
    CHECK(tools::describe(found).starts_with(
        "step 12, micro-batch 1 (samples 384..387), backward: sum of the gradients of parameter "
        "wte.weight has -inf at [5]; the largest"));
  }
}
