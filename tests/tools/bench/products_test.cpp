#include "tools/bench/products.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tools/model/presets.h"
#include "tools/train/flops.h"

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

TEST_CASE("the products of a step are the operations that training counts, for both families") {
  for (const char* const family : {"gpt2", "llama"}) {
    CAPTURE(family);
    ModelConfig model;
    model.name = family;
    model.num_layers = 3;
    model.num_heads = 4;
    model.num_kv_heads = 2;
    model.embed_dim = 48;
    model.head_dim = 10;
    model.ffn_dim = 33;
    model.vocab_size = 50;
    double flops = 0;
    for (const Product& product : step_products(model, 300)) {
      flops += product.flops();
    }
    CHECK(flops == 6 * multiplying_weights(model) * 300);
  }
}

TEST_CASE("a Llama's parameters that lie side by side are multiplied as one, on top of nothing") {
  const auto products = step_products(*preset_model("llama3-8b"), 1024);
  std::vector<std::string> names;
  for (const Product& product : products) {
    if (product.form == ProductForm::Forward) {
      names.push_back(product.name);
      CHECK(product.beta == 0);
    }
  }
  CHECK(names ==
        std::vector<std::string>{"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "head"});
  CHECK(products[0].shape.n == (32 + 2 * 8) * 128);
  CHECK(products[6].shape.n == 2 * 14336);
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

TEST_CASE(
    "the head's last tokens that fill no chunk are multiplied too, onto the sum of the others") {
  const ModelConfig model = *preset_model("gpt2-124m");
  double head_flops = 0;
  for (const Product& product : step_products(model, 300)) {
    if (product.is_head()) {
      head_flops += product.flops();
    }
  }
  CHECK(head_flops == 6.0 * 300 * 50257 * 768);
  const Product last = step_products(model, 300).back();
  CHECK(last.name == "head_tail");
  CHECK(last.form == ProductForm::WeightGradient);
  CHECK(last.shape.k == 44);
  CHECK(last.count == 1);
  CHECK(last.first_beta == 1);
}

TEST_CASE("weights and their gradients stay within their arenas, however often these are used up") {
  ModelConfig model;
  model.num_layers = 3;
  model.embed_dim = 32;
  model.vocab_size = 50;
  const auto products = step_products(model, 40);
  // Fits two of the largest weight, and no whole number of the others.
  constexpr std::int64_t kFloats = 2 * 4 * 32 * 32 + 1000;
  const auto weight_of = [](const Product& product, const ProductOperands::Pointers& at) {
    const GemmShape& shape = product.shape;
    return product.form == ProductForm::WeightGradient
               ? std::span<const float>(at.c, static_cast<std::size_t>(shape.m * shape.n))
               : std::span<const float>(at.b, static_cast<std::size_t>(shape.k * shape.n));
  };
  for (const bool of_gradients : {false, true}) {
    CAPTURE(of_gradients);
    const auto is_meant = [of_gradients](const Product& product) {
      return (product.form == ProductForm::WeightGradient) == of_gradients;
    };
    ProductOperands operands(products, kFloats);
    // The first of all lies where its arena begins.
    const Product first = *std::ranges::find_if(products, is_meant);
    const float* const begin = weight_of(first, operands.next(first)).data();
    const float* last = begin;
    int wraps = 0;
    for (int step = 0; step < 20; ++step) {
      for (const Product& product : products) {
        const std::span<const float> weight = weight_of(product, operands.next(product));
        if (is_meant(product)) {
          wraps += weight.data() < last ? 1 : 0;
          last = weight.data();
          CHECK(weight.data() >= begin);
          CHECK(weight.data() + weight.size() <= begin + kFloats);
        }
      }
    }
    CHECK(wraps > 5);
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

}  // namespace
}  // namespace fsdptrain::tools
