#include "tools/bench/products.h"

#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tools/bench/step_parts.h"
#include "tools/model_presets.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/bench/products");

TEST_CASE("the products of a step of GPT-2 124M are 6 operations per weight and token") {
  const ModelConfig model = *preset_model("gpt2-124m");
  double flops = 0;
  for (const Product& product : step_products(model, 1024)) {
    flops += product.flops();
  }
  const double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  CHECK(flops == 6 * weights * 1024);
}

TEST_CASE("the head's weight gradient is overwritten once and added to from then on") {
  const ModelConfig model = *preset_model("gpt2-124m");
  const auto products = step_products(model, 1024);
  const Product& last = products.back();
  CHECK(last.is_head());
  CHECK(last.form == ProductForm::WeightGradient);
  CHECK(last.count == 4);
  CHECK(last.first_beta == 0);
  CHECK(last.beta == 1);
}

TEST_CASE("operands of a product stay within their memory") {
  ModelConfig model;
  model.num_layers = 3;
  model.embed_dim = 32;
  model.vocab_size = 50;
  const auto products = step_products(model, 40);
  ProductOperands operands(products);
  const Launch launch = current_context().launch(Device::cpu());
  for (const Product& product : products) {
    CAPTURE(product.name);
    CAPTURE(name_of(product.form));
    CHECK(run_ours(launch, product, operands) > 0);
    if (has_library_gemm()) {
      CHECK(run_library(product, operands, 2) > 0);
    }
  }
}

TEST_CASE("the library multiplies what a product says, whatever is transposed") {
  if (!has_library_gemm()) {
    return;
  }
  constexpr std::int64_t kM = 5;
  constexpr std::int64_t kN = 4;
  constexpr std::int64_t kK = 3;
  std::vector<float> a(kM * kK);
  std::vector<float> b(kK * kN);
  std::iota(a.begin(), a.end(), 1.0F);
  std::iota(b.begin(), b.end(), -3.0F);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      CAPTURE(a_transposed);
      CAPTURE(b_transposed);
      std::vector<float> c(kM * kN, 1);
      library_gemm(2, {kM, kN, kK, a_transposed, b_transposed}, a.data(), b.data(), 1, c.data());
      for (std::int64_t i = 0; i < kM; ++i) {
        for (std::int64_t j = 0; j < kN; ++j) {
          float expected = 1;
          for (std::int64_t p = 0; p < kK; ++p) {
            expected += a[static_cast<std::size_t>(a_transposed ? p * kM + i : i * kK + p)] *
                        b[static_cast<std::size_t>(b_transposed ? j * kK + p : p * kN + j)];
          }
          CHECK(c[static_cast<std::size_t>(i * kN + j)] == expected);
        }
      }
    }
  }
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("tools/bench/step_parts");

TEST_CASE("parts add up to the step, and unknown kernels are other") {
  KernelProfile profile;
  { const ProfileScope scope(&profile, "matmul"); }
  { const ProfileScope scope(&profile, "layer_norm"); }
  { const ProfileScope scope(&profile, "layer_norm_backward"); }
  { const ProfileScope scope(&profile, "unheard_of"); }
  const auto parts = step_parts(profile, 10);
  double total = 0;
  for (const StepPart& part : parts) {
    total += part.seconds;
    if (part.name == "norm") {
      CHECK(part.seconds == profile.entries().at("layer_norm").seconds +
                                profile.entries().at("layer_norm_backward").seconds);
    }
  }
  CHECK(total == doctest::Approx(10));
  CHECK(parts.back().name == "other");
  CHECK(parts.back().seconds > 9.9);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
