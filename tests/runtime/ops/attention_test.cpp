#include "runtime/ops/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/view.h"
#include "tests/support/grad_check.h"
#include "tests/support/naive_attention.h"

// Shape suffixes: B batch, T queries, S keys, H heads, D head size.
namespace fsdptrain {
namespace {

using testing::attention_by_formula;
using testing::AttentionSizes;
using testing::AttentionValues;
using testing::check_close;
using testing::check_gradient;
using testing::random_tensor;

constexpr ops::PackedHeads kTwoHeads{.num_heads = 2, .num_kv_heads = 2};

// Float64 values rounded to `dtype`, so that an oracle reads what the op reads.
Tensor random_in(DType dtype, const Shape& shape, std::uint64_t seed) {
  return random_tensor(shape, seed, 1.5, dtype);
}

void check_against_formula(const AttentionSizes& sizes, DType dtype, bool causal,
                           double tolerance) {
  CAPTURE(sizes.batch);
  CAPTURE(sizes.queries);
  CAPTURE(sizes.keys);
  CAPTURE(sizes.heads);
  CAPTURE(sizes.head_size);
  CAPTURE(causal);
  const Shape queries{sizes.batch, sizes.queries, sizes.heads, sizes.head_size};
  const Shape keys{sizes.batch, sizes.keys, sizes.heads, sizes.head_size};
  Tensor q = random_in(dtype, queries, 1).set_requires_grad(true);
  Tensor k = random_in(dtype, keys, 2).set_requires_grad(true);
  Tensor v = random_in(dtype, keys, 3).set_requires_grad(true);
  const Tensor dout = random_in(dtype, queries, 4);
  const double scale = 0.7;
  const auto [out, log_sum_exp] = ops::attention(q, k, v, {.causal = causal, .scale = scale});
  CHECK(out.shape() == queries);
  CHECK(out.dtype() == dtype);
  CHECK(log_sum_exp.shape() == Shape{sizes.batch, sizes.heads, sizes.queries});
  CHECK_FALSE(log_sum_exp.requires_grad());
  autograd::backward(out, {.grad_output = dout});
  const AttentionValues expected = attention_by_formula(
      sizes, {q, k, v, dout}, scale, [&](std::int64_t, std::int64_t t, std::int64_t s) {
        return !causal || s <= t + sizes.keys - sizes.queries;
      });
  check_close("out", out, expected.out, tolerance);
  // float32 also where q is bfloat16.
  check_close("log_sum_exp", log_sum_exp, expected.log_sum_exp,
              dtype == DType::Float64 ? 1e-12 : 2e-5);
  const double sums = std::sqrt(static_cast<double>(std::max(sizes.queries, sizes.keys)) + 1);
  check_close("dq", q.grad(), expected.dq, 4 * tolerance);
  check_close("dk", k.grad(), expected.dk, sums * tolerance);
  check_close("dv", v.grad(), expected.dv, sums * tolerance);
}

const std::vector<AttentionSizes>& all_sizes() {
  static const std::vector<AttentionSizes> sizes{{1, 1, 1, 1, 1, 1},      {2, 3, 5, 2, 2, 7},
                                                 {1, 5, 3, 2, 2, 4},      {2, 64, 64, 1, 1, 16},
                                                 {1, 67, 67, 2, 2, 8},    {1, 61, 131, 1, 1, 5},
                                                 {1, 131, 61, 1, 1, 33},  {1, 300, 300, 1, 1, 8},
                                                 {1, 130, 197, 1, 1, 24}, {1, 70, 70, 1, 1, 257}};
  return sizes;
}

TEST_SUITE("runtime/ops/attention") {
  TEST_CASE("attention and its gradients follow the formula in float64, in every variant") {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context({.threads = 2, .isa = isa, .log_prefix = {}});
      const ContextGuard bound(context);
      for (const AttentionSizes& sizes : all_sizes()) {
        for (const bool causal : {true, false}) {
          check_against_formula(sizes, DType::Float64, causal, 2e-12);
        }
      }
    }
  }

  TEST_CASE("attention in float32 is as good as its arithmetic, in every variant") {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context({.threads = 2, .isa = isa, .log_prefix = {}});
      const ContextGuard bound(context);
      for (const AttentionSizes& sizes : all_sizes()) {
        check_against_formula(sizes, DType::Float32, true, 1e-5);
      }
    }
  }

  TEST_CASE("attention in bfloat16 rounds its results only") {
    for (const AttentionSizes& sizes : all_sizes()) {
      check_against_formula(sizes, DType::BFloat16, true, 2e-2);
    }
  }

  TEST_CASE("the gradient of attention matches finite differences") {
    for (const bool causal : {true, false}) {
      check_gradient(
          [causal](const std::vector<Tensor>& inputs) {
            return ops::attention(inputs[0], inputs[1], inputs[2], {.causal = causal}).out;
          },
          {random_tensor({2, 4, 2, 3}, 1), random_tensor({2, 5, 2, 3}, 2),
           random_tensor({2, 5, 2, 3}, 3)});
    }
  }

  TEST_CASE("views of one packed projection give what dense tensors do") {
    const auto packed_attention = [](const Tensor& qkv) {
      const auto part = [&](std::int64_t which) {
        return ops::squeeze(ops::narrow(qkv, 2, which, 1), 2);
      };
      return ops::attention(part(0), part(1), part(2)).out;
    };
    Tensor qkv = random_tensor({2, 5, 3, 2, 4}, 9);
    const auto copy = [&](std::int64_t which) {
      return ops::clone(ops::squeeze(ops::narrow(qkv, 2, which, 1), 2));
    };
    const Tensor dense = ops::attention(copy(0), copy(1), copy(2)).out;
    CHECK(packed_attention(qkv).to_vector() == dense.to_vector());
    check_gradient(packed_attention, qkv);
  }

  TEST_CASE("packed_attention gives the bits of attention on the parts, and one gradient") {
    for (const bool causal : {true, false}) {
      Tensor packed = random_tensor({2, 70, 3 * 2 * 5}, 1, 1, DType::Float32);
      packed.set_requires_grad(true);
      const Tensor dout = random_tensor({2, 70, 2, 5}, 2, 1, DType::Float32);
      const auto once = ops::packed_attention(packed, kTwoHeads, {.causal = causal});
      autograd::backward(once.out, {.grad_output = dout});
      const std::vector<double> gradient = packed.grad().to_vector();
      packed.zero_grad();
      const std::int64_t sizes[] = {10, 10, 10};
      std::vector<Tensor> parts = ops::split(packed, sizes, -1);
      for (Tensor& part : parts) {
        part = ops::reshape(part, {2, 70, 2, 5});
      }
      const auto apart = ops::attention(parts[0], parts[1], parts[2], {.causal = causal});
      CHECK(once.out.to_vector() == apart.out.to_vector());
      CHECK(once.log_sum_exp.to_vector() == apart.log_sum_exp.to_vector());
      autograd::backward(apart.out, {.grad_output = dout});
      CHECK(packed.grad().to_vector() == gradient);
    }
    check_gradient([](const Tensor& x) { return ops::packed_attention(x, kTwoHeads).out; },
                   random_tensor({1, 4, 12}, 1));
    CHECK_THROWS_WITH_AS(ops::packed_attention(Tensor::zeros({1, 2, 10}), kTwoHeads),
                         doctest::Contains("attention: packed 2 query and 2 key-value heads must "
                                           "be [batch, position, (query heads + 2 * key-value "
                                           "heads) * head size], got [1, 2, 10]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::packed_attention(Tensor::zeros({1, 2, 10}), {.num_heads = 5, .num_kv_heads = 0}),
        doctest::Contains("attention: needs at least one query head and one key-value head, got 5 "
                          "and 0"),
        ShapeError);
  }

  TEST_CASE("strides of heads, features and gradients are free") {
    const Tensor x = random_tensor({2, 3, 4, 5}, 9);
    const Tensor heads_first = ops::transpose(x, 1, 2);
    const Tensor features_first =
        ops::transpose(ops::clone(ops::transpose(heads_first, 1, 3)), 1, 3);
    CHECK(features_first.strides()[3] != 1);
    const Tensor expected =
        ops::attention(ops::clone(heads_first), ops::clone(heads_first), ops::clone(heads_first))
            .out;
    CHECK(ops::attention(heads_first, features_first, heads_first).out.to_vector() ==
          expected.to_vector());
    check_gradient(
        [](const Tensor& q) {
          const Tensor out = ops::attention(q, q, q).out;
          return ops::transpose(out, 1, 3);
        },
        ops::clone(heads_first));
  }

  TEST_CASE("the default scale is 1 / sqrt(D)") {
    const Tensor x = random_tensor({1, 3, 1, 16}, 2);
    CHECK(ops::attention(x, x, x).out.to_vector() ==
          ops::attention(x, x, x, {.scale = 0.25}).out.to_vector());
  }

  TEST_CASE("empty batches, queries and keys are allowed") {
    for (const bool causal : {true, false}) {
      const Tensor none = Tensor::empty({2, 0, 3, 4}, DType::Float32);
      Tensor some = random_tensor({2, 5, 3, 4}, 1, 1.0, DType::Float32).set_requires_grad(true);
      CHECK(ops::attention(none, some, some, {.causal = causal}).out.numel() == 0);

      const auto [out, log_sum_exp] = ops::attention(some, none, none, {.causal = causal});
      for (const double value : out.to_vector()) {
        CHECK(value == 0);
      }
      for (const double value : log_sum_exp.to_vector()) {
        CHECK(value == -std::numeric_limits<double>::infinity());
      }
      autograd::backward(out, {.grad_output = Tensor::full(out.shape(), 1)});
      for (const double value : some.grad().to_vector()) {
        CHECK(value == 0);
      }
    }
    const Tensor empty = Tensor::empty({0, 2, 3, 4}, DType::Float32);
    CHECK(ops::attention(empty, empty, empty).out.shape() == Shape{0, 2, 3, 4});
  }

  TEST_CASE("scores beyond the range of exp still make a softmax") {
    // Key 0 wins by 10^4: its value is the result.
    const Tensor q = Tensor::full({1, 1, 1, 1}, 100);
    Tensor k = Tensor::zeros({1, 70, 1, 1});
    k.set_item(0, 100);
    Tensor v = Tensor::zeros({1, 70, 1, 1});
    v.set_item(0, 3);
    const auto [out, log_sum_exp] = ops::attention(q, k, v, {.scale = 1});
    CHECK(out.item() == 3);
    CHECK(log_sum_exp.item() == 10000);
  }

  TEST_CASE("the bits do not depend on threads or runs") {
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 2, 2, 3, 5}) {
      RankContext context({.threads = threads, .isa = {}, .log_prefix = {}});
      const ContextGuard bound(context);
      Tensor q = random_in(DType::Float32, {2, 261, 3, 12}, 1).set_requires_grad(true);
      Tensor k = random_in(DType::Float32, {2, 263, 3, 12}, 2).set_requires_grad(true);
      Tensor v = random_in(DType::Float32, {2, 263, 3, 12}, 3).set_requires_grad(true);
      const auto [out, log_sum_exp] = ops::attention(q, k, v);
      autograd::backward(out, {.grad_output = random_in(DType::Float32, out.shape(), 4)});
      std::vector<double> all = out.to_vector();
      for (const Tensor& more : {log_sum_exp, q.grad(), k.grad(), v.grad()}) {
        const std::vector<double> values = more.to_vector();
        all.insert(all.end(), values.begin(), values.end());
      }
      results.push_back(all);
    }
    for (const auto& result : results) {
      CHECK(result == results.front());
    }
  }

  TEST_CASE("a run on meta allocates what a run on the CPU does") {
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
      const auto counters_on = [dtype](Device device) {
        RankContext context({.threads = 3, .isa = {}, .log_prefix = {}});
        const ContextGuard bound(context);
        {
          const Shape shape{2, 70, 3, 20};
          Tensor q = Tensor::zeros(shape, dtype, device).set_requires_grad(true);
          Tensor k = Tensor::zeros(shape, dtype, device).set_requires_grad(true);
          const Tensor out = ops::attention(q, k, k).out;
          autograd::backward(out, {.grad_output = Tensor::full(shape, 1, dtype, device)});
        }
        return context.allocator(device).counters();
      };
      const MemoryCounters meta = counters_on(Device::meta());
      CHECK(meta == counters_on(Device::cpu()));
      CHECK(meta.peak_of(MemoryCategory::Workspace) > 0);
      CHECK(meta.live_total == 0);
    }
  }

  TEST_CASE("the graph of attention dies with its output") {
    RankContext context;
    const ContextGuard bound(context);
    {
      Tensor q = random_tensor({1, 2, 1, 4}, 1).set_requires_grad(true);
      const ops::AttentionOutput output = ops::attention(q, q, q);
    }
    CHECK(context.allocator(Device::cpu()).counters().live_total == 0);
  }

  TEST_CASE("what attention does not do is refused by name") {
    const Tensor q = Tensor::zeros({2, 3, 8, 4});
    const auto refused = [&](const Tensor& k, const Tensor& v, const ops::AttentionOptions& options,
                             const char* text) {
      CHECK_THROWS_WITH_AS(ops::attention(q, k, v, options), doctest::Contains(text), ShapeError);
    };
    refused(q, q, {.scale = std::numeric_limits<double>::infinity()},
            "attention: the scale must be finite, got inf");
    refused(q, Tensor::zeros({2, 4, 8, 4}), {},
            "attention: k and v must have one shape, got [2, 3, 8, 4] and [2, 4, 8, 4]");
    const Tensor other_batch = Tensor::zeros({1, 3, 8, 4});
    refused(other_batch, other_batch, {},
            "attention: q and k must have one batch and head size, got [2, 3, 8, 4] and "
            "[1, 3, 8, 4]");
    const Tensor flat = Tensor::zeros({2, 3, 4});
    refused(flat, flat, {}, "attention: q, k and v must be [batch, position, head, feature]");
    const Tensor nothing = Tensor::zeros({1, 1, 1, 0});
    CHECK_THROWS_WITH_AS(ops::attention(nothing, nothing, nothing),
                         doctest::Contains("attention: the head size must be at least 1"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::attention(q, q, Tensor::zeros({2, 3, 8, 4}, DType::Float64)),
                         doctest::Contains("attention: dtypes float32 and float64 differ"),
                         DTypeError);
    const Tensor integers = Tensor::zeros({2, 3, 8, 4}, DType::Int64);
    CHECK_THROWS_AS(ops::attention(integers, integers, integers), DTypeError);
    CHECK_THROWS_AS(
        ops::attention(q, q, Tensor::zeros({2, 3, 8, 4}, DType::Float32, Device::meta())),
        DeviceError);
  }
}

}  // namespace
}  // namespace fsdptrain
