#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/tensor/tensor.h"
#include "tests/support/max_or_nan.h"

// Shape suffixes: B batch, T queries, S keys, H query heads, G key-value heads, D head size.
namespace fsdptrain::testing {

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
};

struct AttentionInputs {
  Tensor q_BTHD, k_BSGD, v_BSGD, dout_BTHD;
};

struct AttentionValues {
  std::vector<double> out, log_sum_exp, dq, dk, dv;
};

using Visible = std::function<bool(std::int64_t batch, std::int64_t query, std::int64_t key)>;

// softmax(scale q k^T) v and its gradients by the formula, one pair of positions after another.
inline AttentionValues attention_by_formula(const AttentionSizes& sizes,
                                            const AttentionInputs& inputs, double scale,
                                            const Visible& visible) {
  const auto [B, T, S, H, G, D] = sizes;
  const std::vector<double> q = inputs.q_BTHD.to_vector();
  const std::vector<double> k = inputs.k_BSGD.to_vector();
  const std::vector<double> v = inputs.v_BSGD.to_vector();
  const std::vector<double> dout = inputs.dout_BTHD.to_vector();
  AttentionValues values{
      std::vector<double>(q.size()), std::vector<double>(static_cast<std::size_t>(B * H * T)),
      std::vector<double>(q.size()), std::vector<double>(k.size()), std::vector<double>(v.size())};
  const auto size = static_cast<std::size_t>(D);
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t t = 0; t < T; ++t) {
        const auto row = static_cast<std::size_t>(((b * T + t) * H + h) * D);
        // Where the keys that it sees begin.
        std::vector<std::size_t> keys;
        std::vector<double> weights;
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t s = 0; s < S; ++s) {
          if (!visible(b, t, s)) {
            continue;
          }
          keys.push_back(static_cast<std::size_t>(((b * S + s) * G + h / (H / G)) * D));
          double score = 0;
          for (std::size_t d = 0; d < size; ++d) {
            score += q[row + d] * k[keys.back() + d];
          }
          weights.push_back(scale * score);
          largest = std::max(largest, scale * score);
        }
        double sum = 0;
        for (double& weight : weights) {
          weight = std::exp(weight - largest);
          sum += weight;
        }
        values.log_sum_exp[static_cast<std::size_t>((b * H + h) * T + t)] =
            weights.empty() ? largest : largest + std::log(sum);
        double delta = 0;
        std::vector<double> dweights;
        for (std::size_t s = 0; s < keys.size(); ++s) {
          weights[s] /= sum;
          double dweight = 0;
          for (std::size_t d = 0; d < size; ++d) {
            values.out[row + d] += weights[s] * v[keys[s] + d];
            values.dv[keys[s] + d] += weights[s] * dout[row + d];
            dweight += dout[row + d] * v[keys[s] + d];
          }
          dweights.push_back(dweight);
          delta += weights[s] * dweight;
        }
        for (std::size_t s = 0; s < keys.size(); ++s) {
          const double dscore = scale * weights[s] * (dweights[s] - delta);
          for (std::size_t d = 0; d < size; ++d) {
            values.dq[row + d] += dscore * k[keys[s] + d];
            values.dk[keys[s] + d] += dscore * q[row + d];
          }
        }
      }
    }
  }
  return values;
}

inline void check_close(const char* name, const Tensor& actual, const std::vector<double>& expected,
                        double tolerance) {
  CAPTURE(name);
  const std::vector<double> values = actual.to_vector();
  REQUIRE(values.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Equal infinities are close; NaN is not.
    const double difference = values[i] == expected[i] ? 0 : std::abs(values[i] - expected[i]);
    worst = max_or_nan(worst, difference);
  }
  CHECK(worst <= tolerance);
}

}  // namespace fsdptrain::testing
