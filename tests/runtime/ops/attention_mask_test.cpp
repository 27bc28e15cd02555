#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/naive_attention.h"

// Grouped heads, windows and documents (runtime/ops/attention.h).
//
// Shape suffixes: B batch, T queries, S keys, H query heads, G key-value heads, D head size.
namespace fsdptrain {
namespace {

using testing::AttentionSizes;
using testing::check_close;
using testing::check_gradient;
using testing::random_tensor;

// Documents of these lengths, over and over; another order of ids, not monotonic, for each sample.
Tensor documents_of(std::int64_t batch, std::int64_t tokens,
                    const std::vector<std::int64_t>& lengths) {
  Tensor ids = Tensor::empty({batch, tokens}, DType::Int64);
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t document = 0;
    std::int64_t left = lengths[0];
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (left == 0) {
        ++document;
        left = lengths[static_cast<std::size_t>(document) % lengths.size()];
      }
      --left;
      ids.set_item(b * tokens + t,
                   static_cast<double>(b % 2 == 0 ? 10 * document - 7 : (document * 5 + 3) % 7));
    }
  }
  return ids;
}

struct Case {
  AttentionSizes sizes;
  std::int64_t window = 0;
  std::vector<std::int64_t> documents = {};
};

bool sees(const Case& c, bool causal, const Tensor& ids, std::int64_t b, std::int64_t t,
          std::int64_t s) {
  const std::int64_t own = t + c.sizes.keys - c.sizes.queries;
  return (!causal || s <= own) && (c.window == 0 || std::abs(s - own) < c.window) &&
         (!ids.defined() || ids.item(b * c.sizes.queries + t) == ids.item(b * c.sizes.queries + s));
}

void check_case(const Case& c, DType dtype, bool causal, double tolerance) {
  const AttentionSizes& sizes = c.sizes;
  CAPTURE(sizes.queries);
  CAPTURE(sizes.keys);
  CAPTURE(sizes.heads);
  CAPTURE(sizes.kv_heads);
  CAPTURE(c.window);
  CAPTURE(c.documents.size());
  CAPTURE(causal);
  const Shape queries{sizes.batch, sizes.queries, sizes.heads, sizes.head_size};
  const Shape keys{sizes.batch, sizes.keys, sizes.kv_heads, sizes.head_size};
  const Tensor q = random_tensor(queries, 1, 1.5, dtype).set_requires_grad(true);
  const Tensor k = random_tensor(keys, 2, 1.5, dtype).set_requires_grad(true);
  const Tensor v = random_tensor(keys, 3, 1.5, dtype).set_requires_grad(true);
  const Tensor dout = random_tensor(queries, 4, 1.5, dtype);
  const Tensor ids =
      c.documents.empty() ? Tensor() : documents_of(sizes.batch, sizes.queries, c.documents);
  const auto [out, log_sum_exp] = ops::attention(
      q, k, v, {.causal = causal, .scale = 0.7, .document_ids = ids, .window = c.window});
  autograd::backward(out, {.grad_output = dout});
  const auto expected = testing::attention_by_formula(
      sizes, {q, k, v, dout}, 0.7, [&](std::int64_t b, std::int64_t t, std::int64_t s) {
        return sees(c, causal, ids, b, t, s);
      });
  check_close("out", out, expected.out, tolerance);
  check_close("log_sum_exp", log_sum_exp, expected.log_sum_exp,
              dtype == DType::Float64 ? 1e-12 : 2e-5);
  const auto pairs =
      static_cast<double>(std::max(sizes.queries, sizes.keys) * sizes.heads / sizes.kv_heads);
  check_close("dq", q.grad(), expected.dq, 4 * tolerance);
  check_close("dk", k.grad(), expected.dk, std::sqrt(pairs + 1) * tolerance);
  check_close("dv", v.grad(), expected.dv, std::sqrt(pairs + 1) * tolerance);
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases{
      {{1, 1, 1, 3, 1, 1}},
      {{2, 67, 67, 6, 2, 5}},
      {{1, 70, 131, 4, 1, 8}},
      {{1, 5, 3, 1, 1, 4}, 1},
      {{1, 67, 67, 1, 1, 4}, 1},
      {{1, 131, 131, 1, 1, 7}, 2},
      {{1, 200, 200, 1, 1, 4}, 63},
      {{1, 200, 200, 1, 1, 4}, 64},
      {{1, 331, 331, 1, 1, 4}, 65},
      {{1, 61, 197, 1, 1, 4}, 30},
      {{1, 197, 61, 1, 1, 4}, 30},
      {{1, 67, 67, 1, 1, 4}, std::numeric_limits<std::int64_t>::max()},
      {{2, 1, 1, 1, 1, 4}, 0, {1}},
      {{2, 67, 67, 2, 2, 4}, 0, {1, 5, 3}},
      {{2, 200, 200, 1, 1, 4}, 0, {64, 128}},
      {{2, 331, 331, 1, 1, 4}, 0, {3, 97, 1, 130}},
      {{2, 331, 331, 4, 2, 4}, 50, {3, 97, 1, 130}},
      {{1, 300, 300, 6, 3, 19}, 100, {290}},
  };
  return cases;
}

}  // namespace

TEST_SUITE("runtime/ops/attention masks") {
  TEST_CASE("groups, windows and documents follow the formula in float64, in every variant") {
    testing::for_each_isa([] {
      for (const Case& c : all_cases()) {
        for (const bool causal : {true, false}) {
          check_case(c, DType::Float64, causal, 2e-12);
        }
      }
    });
  }

  TEST_CASE("groups, windows and documents are as good as their arithmetic") {
    testing::for_each_isa([] {
      for (const Case& c : all_cases()) {
        check_case(c, DType::Float32, true, 1e-5);
      }
    });
    for (const Case& c : all_cases()) {
      check_case(c, DType::BFloat16, false, 2e-2);
    }
  }

  TEST_CASE("the gradients of groups, windows and documents match finite differences") {
    const Tensor ids = documents_of(2, 7, {2, 4});
    for (const bool causal : {true, false}) {
      check_gradient(
          [&](const std::vector<Tensor>& in) {
            return ops::attention(in[0], in[1], in[2],
                                  {.causal = causal, .document_ids = ids, .window = 3})
                .out;
          },
          {random_tensor({2, 7, 4, 3}, 1), random_tensor({2, 7, 2, 3}, 2),
           random_tensor({2, 7, 2, 3}, 3)});
    }
  }

  TEST_CASE("packed_attention with grouped heads gives the bits of attention on the parts") {
    const ops::AttentionOptions options{.document_ids = documents_of(2, 70, {3, 40}), .window = 9};
    const Tensor packed =
        random_tensor({2, 70, 8 * 5}, 1, 1, DType::Float32).set_requires_grad(true);
    const Tensor dout = random_tensor({2, 70, 4, 5}, 2, 1, DType::Float32);
    const auto once = ops::packed_attention(packed, {.num_heads = 4, .num_kv_heads = 2}, options);
    autograd::backward(once.out, {.grad_output = dout});
    const std::vector<double> gradient = packed.grad().to_vector();
    Tensor(packed).zero_grad();
    const auto part = [&](std::int64_t first, std::int64_t heads) {
      return ops::reshape(ops::narrow(packed, 2, first * 5, heads * 5), {2, 70, heads, 5});
    };
    const auto apart = ops::attention(part(0, 4), part(4, 2), part(6, 2), options);
    CHECK(once.out.to_vector() == apart.out.to_vector());
    autograd::backward(apart.out, {.grad_output = dout});
    CHECK(packed.grad().to_vector() == gradient);
  }

  TEST_CASE("a window over all keys, or one document, changes no bit") {
    const Tensor q = random_tensor({2, 131, 2, 8}, 1, 1, DType::Float32);
    const std::vector<double> plain = ops::attention(q, q, q).out.to_vector();
    CHECK(ops::attention(q, q, q, {.window = 131}).out.to_vector() == plain);
    CHECK(ops::attention(q, q, q, {.document_ids = Tensor::full({2, 131}, -5, DType::Int64)})
              .out.to_vector() == plain);
    CHECK(ops::attention(q, q, q, {.window = 130}).out.to_vector() != plain);
  }

  TEST_CASE("blocks of keys that no query of a block sees are not read") {
    // Were the first two blocks multiplied and masked, their NaN would spread.
    const auto check = [](const ops::AttentionOptions& options) {
      for (const bool causal : {true, false}) {
        CAPTURE(causal);
        Tensor q = random_tensor({1, 256, 2, 4}, 1, 1, DType::Float32).set_requires_grad(true);
        Tensor k = random_tensor({1, 256, 1, 4}, 2, 1, DType::Float32);
        for (std::int64_t i = 0; i < 128 * 4; ++i) {
          k.set_item(i, std::nan(""));
        }
        k.set_requires_grad(true);
        ops::AttentionOptions with = options;
        with.causal = causal;
        const Tensor out = ops::attention(q, k, k, with).out;
        autograd::backward(out, {.grad_output = Tensor::full(out.shape(), 1)});
        CHECK(std::isnan(out.item(0)));
        for (std::int64_t i = 192 * 8; i < 256 * 8; ++i) {
          CHECK(std::isfinite(out.item(i)));
          CHECK(std::isfinite(q.grad().item(i)));
        }
      }
    };
    check({.window = 60});
    // The ids that follow rise, or fall.
    for (const double second : {4, 2}) {
      Tensor ids = Tensor::full({1, 256}, 3, DType::Int64);
      for (std::int64_t i = 128; i < 256; ++i) {
        ids.set_item(i, second);
      }
      check({.document_ids = ids});
    }
  }

  TEST_CASE("the bits of masked and grouped attention do not depend on threads") {
    testing::check_same_bits([] {
      const Tensor q = random_tensor({2, 261, 6, 12}, 1, 1, DType::Float32).set_requires_grad(true);
      const Tensor k = random_tensor({2, 261, 2, 12}, 2, 1, DType::Float32).set_requires_grad(true);
      const Tensor v = random_tensor({2, 261, 2, 12}, 3, 1, DType::Float32).set_requires_grad(true);
      const auto [out, log_sum_exp] = ops::attention(
          q, k, v, {.document_ids = documents_of(2, 261, {70, 5, 110}), .window = 90});
      autograd::backward(out, {.grad_output = random_tensor(out.shape(), 4, 1, DType::Float32)});
      return std::vector{out.detach(), log_sum_exp, q.grad(), k.grad(), v.grad()};
    });
  }

  TEST_CASE("masked attention allocates on meta what it does on the CPU, and no matrix of scores") {
    testing::check_same_memory([](Device device) {
      for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
        const Tensor q = Tensor::zeros({2, 70, 4, 20}, dtype, device).set_requires_grad(true);
        const Tensor k = Tensor::zeros({2, 70, 2, 20}, dtype, device).set_requires_grad(true);
        const Tensor ids = Tensor::zeros({2, 70}, DType::Int64, device);
        const Tensor out = ops::attention(q, k, k, {.document_ids = ids, .window = 9}).out;
        autograd::backward(out, {.grad_output = Tensor::full(out.shape(), 1, dtype, device)});
      }
    });
  }

  TEST_CASE("document ids changed between forward and backward are noticed") {
    const Tensor q = random_tensor({1, 6, 1, 4}, 1).set_requires_grad(true);
    const Tensor ids = documents_of(1, 6, {2});
    const Tensor out = ops::attention(q, q, q, {.document_ids = ids}).out;
    ids.mutable_values<std::int64_t>()[0] = 9;
    CHECK_THROWS_WITH_AS(
        autograd::backward(out, {.grad_output = Tensor::full(out.shape(), 1, DType::Float64)}),
        doctest::Contains("was changed in place"), AutogradError);
  }

  TEST_CASE("groups, windows and documents that do not fit are refused by name") {
    const Tensor q = Tensor::zeros({2, 3, 8, 4});
    const auto refused = [&](const Tensor& k, const ops::AttentionOptions& options,
                             const char* text) {
      CHECK_THROWS_WITH_AS(ops::attention(q, k, k, options), doctest::Contains(text), ShapeError);
    };
    refused(Tensor::zeros({2, 3, 3, 4}), {},
            "attention: query heads must be a multiple of key-value heads, got 8 and 3");
    refused(Tensor::zeros({2, 3, 0, 4}), {},
            "attention: query heads must be a multiple of key-value heads, got 8 and 0");
    refused(q, {.window = -1}, "attention: the window must not be negative, got -1");
    refused(q, {.document_ids = Tensor::zeros({3}, DType::Int64)},
            "attention: document_ids of shape [3] do not fit queries of shape [2, 3, 8, 4]");
    refused(Tensor::zeros({2, 5, 8, 4}), {.document_ids = Tensor::zeros({2, 3}, DType::Int64)},
            "attention: document_ids are of as many queries as keys, got 3 and 5");
    CHECK_THROWS_WITH_AS(
        ops::attention(q, q, q, {.document_ids = Tensor::zeros({2, 3}, DType::Int32)}),
        doctest::Contains("attention: document_ids must be int64, got int32"), DTypeError);
    CHECK_THROWS_AS(
        ops::attention(q, q, q,
                       {.document_ids = Tensor::zeros({2, 3}, DType::Int64, Device::meta())}),
        DeviceError);
  }
}

}  // namespace fsdptrain
