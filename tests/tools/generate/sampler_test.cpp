#include "tools/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/nn/evaluation_guard.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sharded_decoder.h"

namespace fsdptrain::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kDraws = 10'000;

TEST_SUITE_BEGIN("tools/generate/sampler");

// How often each token comes for uniform numbers in equal steps: its probability, to one step.
std::vector<double> frequencies(const std::vector<double>& logits, double temperature,
                                std::int64_t top_k) {
  std::vector<double> frequency(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    const std::int64_t token =
        draw(logits, {.temperature = temperature, .top_k = top_k}, (i + 0.5) / kDraws);
    frequency.at(static_cast<std::size_t>(token)) += 1.0 / kDraws;
  }
  return frequency;
}

void check_frequencies(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t token = 0; token < got.size(); ++token) {
    CAPTURE(token);
    CHECK(std::abs(got[token] - expected[token]) <= 1.01 / kDraws);
  }
}

TEST_CASE("temperature 0 takes the largest logit, the first of equal ones") {
  for (const double uniform : {1e-9, 0.5, 1 - 1e-9}) {
    CHECK(draw({0, 3, -1, 2}, {.temperature = 0}, uniform) == 1);
    CHECK(draw({-5, -kInfinity, -4}, {.temperature = 0}, uniform) == 2);
    CHECK(draw({1, 7, 7}, {.temperature = 0}, uniform) == 1);
    CHECK(draw({42}, {.temperature = 0}, uniform) == 0);
  }
}

TEST_CASE("tokens come as often as their softmax says") {
  const std::vector<double> logits{std::log(0.1), std::log(0.6), std::log(0.05), std::log(0.25)};
  check_frequencies(frequencies(logits, 1, 0), {0.1, 0.6, 0.05, 0.25});
  // Probabilities squared, and divided by their sum.
  const double sum = 0.01 + 0.36 + 0.0025 + 0.0625;
  check_frequencies(frequencies(logits, 0.5, 0),
                    {0.01 / sum, 0.36 / sum, 0.0025 / sum, 0.0625 / sum});
}

TEST_CASE("only differences of logits count, at any size") {
  const std::vector<double> expected = frequencies({0, 1, 2}, 1, 0);
  CHECK(frequencies({1e4, 1e4 + 1, 1e4 + 2}, 1, 0) == expected);
  CHECK(frequencies({-1e4, -1e4 + 1, -1e4 + 2}, 1, 0) == expected);
}

TEST_CASE("top_k keeps the likeliest and their proportions") {
  const std::vector<double> logits{std::log(0.1), std::log(0.6), std::log(0.05), std::log(0.25)};
  check_frequencies(frequencies(logits, 1, 2), {0, 0.6 / 0.85, 0, 0.25 / 0.85});
  check_frequencies(frequencies(logits, 1, 1), {0, 1, 0, 0});
  for (const std::int64_t all : {0, 4, 100}) {
    check_frequencies(frequencies(logits, 1, all), {0.1, 0.6, 0.05, 0.25});
  }
  // Ties at the edge are all kept.
  check_frequencies(frequencies({0, 0, -1}, 1, 1), {0.5, 0.5, 0});
}

TEST_CASE("a logit of -infinity is never drawn") {
  check_frequencies(frequencies({-kInfinity, 0, -kInfinity, 0, -kInfinity}, 1, 0),
                    {0, 0.5, 0, 0.5, 0});
  // 1 stands for what rounding may leave over of the weights.
  for (const double uniform : {1e-12, 1 - 1e-12, 1.0}) {
    CHECK(draw({-kInfinity, 0, -kInfinity}, {.temperature = 1}, uniform) == 1);
    CHECK(draw({-kInfinity, 0, -kInfinity}, {.temperature = 1, .top_k = 2}, uniform) == 1);
  }
}

TEST_CASE("top_p keeps the fewest of the likeliest that reach it, and their proportions") {
  const std::vector<double> logits{std::log(0.1), std::log(0.6), std::log(0.05), std::log(0.25)};
  const auto cut = [&](double top_p, std::int64_t top_k) {
    std::vector<double> frequency(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      const std::int64_t token =
          draw(logits, {.temperature = 1, .top_k = top_k, .top_p = top_p}, (i + 0.5) / kDraws);
      frequency.at(static_cast<std::size_t>(token)) += 1.0 / kDraws;
    }
    return frequency;
  };
  check_frequencies(cut(0.59, 0), {0, 1, 0, 0});
  check_frequencies(cut(0.61, 0), {0, 0.6 / 0.85, 0, 0.25 / 0.85});
  check_frequencies(cut(0.84, 0), {0, 0.6 / 0.85, 0, 0.25 / 0.85});
  check_frequencies(cut(0.86, 0), {0.1 / 0.95, 0.6 / 0.95, 0, 0.25 / 0.95});
  check_frequencies(cut(1, 0), {0.1, 0.6, 0.05, 0.25});
  // Shares are of what top_k left: 0.6 of 0.85 is 0.706.
  check_frequencies(cut(0.7, 2), {0, 1, 0, 0});
  check_frequencies(cut(0.71, 2), {0, 0.6 / 0.85, 0, 0.25 / 0.85});
  for (const double uniform : {1e-9, 0.5, 1 - 1e-9}) {
    CHECK(draw({7, 7, 7}, {.temperature = 1, .top_p = 1e-9}, uniform) == 0);
  }
}

// A model of 11 tokens and 8 positions whose training mode makes itself felt.
models::Gpt2Config small_with_dropout() {
  models::Gpt2Config config;
  config.vocab_size = 11;
  config.max_seq_len = 8;
  config.num_layers = 1;
  config.num_heads = 1;
  config.embed_dim = 8;
  config.dropout = 0.5;
  return config;
}

TEST_CASE("the likeliest token at temperature 0 is the argmax of the model's logits") {
  models::Gpt2 model(small_with_dropout());
  testing::LoneRanks ranks;
  const auto sharded = testing::shard_decoder(model, ranks.group(), {.seed = 5});
  // Initial weights are so small that every token would be followed by itself, and biases of this
  // size make it one token always.
  for (const shard::ParameterPart& part : shard::parts_of(*sharded)) {
    if (part.shape.dims() < 2) {
      continue;
    }
    Tensor values = part.values();
    const Tensor random = testing::random_tensor(values.shape(), 7);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      values.set_item(i, random.item(i));
    }
  }
  std::set<std::int64_t> seen;
  for (std::uint64_t prompt = 0; prompt < 20; ++prompt) {
    std::vector<std::int64_t> tokens;
    for (std::uint64_t i = 0; i <= prompt; ++i) {
      tokens.push_back(philox(i, prompt, 9).word[0] % 11);
    }
    // Of the last 8 tokens, beyond which the model does not see.
    sample(model, tokens, {.num_tokens = 2, .temperature = 0}, [&](std::int64_t token) {
      const nn::EvaluationGuard evaluation(model);
      const auto length = std::min<std::int64_t>(std::ssize(tokens), 8);
      const Tensor logits = model.logits(models::one_document(Tensor::from<std::int64_t>(
          std::span(tokens).last(static_cast<std::size_t>(length)), {1, length})));
      for (std::int64_t other = 0; other < 11; ++other) {
        CHECK(logits.item((length - 1) * 11 + other) <= logits.item((length - 1) * 11 + token));
      }
      tokens.push_back(token);
      seen.insert(token);
      return true;
    });
  }
  CHECK(seen.size() > 3);
}

TEST_CASE("each token is drawn by a number of its own") {
  models::Gpt2 model(small_with_dropout());
  testing::LoneRanks ranks;
  const auto sharded = testing::shard_decoder(model, ranks.group(), {.seed = 5});
  // All tokens are about equally likely.
  std::vector<double> counts(11);
  sample(model, {1}, {.num_tokens = 1100, .temperature = 100}, [&](std::int64_t token) {
    counts.at(static_cast<std::size_t>(token)) += 1;
    return true;
  });
  for (const double count : counts) {
    CHECK(std::abs(count - 100) < 60);  // six standard deviations
  }
}

TEST_CASE("sampled tokens follow the model's distribution, by chi-square") {
  models::Gpt2 model(
      {.vocab_size = 7, .max_seq_len = 4, .num_layers = 1, .num_heads = 1, .embed_dim = 8});
  testing::LoneRanks ranks;
  const auto sharded = testing::shard_decoder(model, ranks.group(), {.seed = 11});
  const std::vector<std::int64_t> prompt{4, 1};
  const double temperature = 0.06;
  const Tensor logits =
      model.logits(models::one_document(Tensor::from<std::int64_t>(prompt, {1, 2})));
  std::vector<double> expected;
  double total = 0;
  for (std::int64_t token = 0; token < 7; ++token) {
    expected.push_back(std::exp(logits.item(7 + token) / temperature));
    total += expected.back();
  }
  constexpr int kSamples = 4000;
  std::vector<double> counts(7);
  for (int seed = 0; seed < kSamples; ++seed) {
    sample(model, prompt,
           {.num_tokens = 1, .temperature = temperature, .seed = static_cast<std::uint64_t>(seed)},
           [&](std::int64_t token) {
             counts.at(static_cast<std::size_t>(token)) += 1;
             return true;
           });
  }
  double chi_square = 0;
  for (std::size_t token = 0; token < 7; ++token) {
    const double mean = kSamples * expected[token] / total;
    CAPTURE(token);
    CHECK(mean > 20);
    chi_square += (counts[token] - mean) * (counts[token] - mean) / mean;
  }
  // The 99.9 % quantile of chi-square with 6 degrees of freedom.
  CHECK(chi_square < 22.46);
}

TEST_CASE("logits that give no distribution are refused") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    CHECK_THROWS_WITH_AS(draw({0, nan, 1}, {.temperature = temperature}, 0.5),
                         doctest::Contains("a logit of nan"), Error);
    CHECK_THROWS_WITH_AS(draw({0, kInfinity}, {.temperature = temperature}, 0.5),
                         doctest::Contains("the largest logit of the model is inf"), Error);
    CHECK_THROWS_WITH_AS(draw({-kInfinity, -kInfinity}, {.temperature = temperature}, 0.5),
                         doctest::Contains("the largest logit of the model is -inf"), Error);
  }
}

TEST_CASE("a sample is repeatable, goes on behind max_seq_len, and needs a prompt") {
  models::Gpt2 model(
      {.vocab_size = 11, .max_seq_len = 4, .num_layers = 1, .num_heads = 1, .embed_dim = 8});
  testing::LoneRanks ranks;
  const auto sharded = testing::shard_decoder(model, ranks.group(), {.seed = 3});
  const auto continued = [&](std::uint64_t seed) {
    std::vector<std::int64_t> tokens;
    sample(model, {1, 2, 3}, {.num_tokens = 20, .seed = seed}, [&](std::int64_t token) {
      tokens.push_back(token);
      return true;
    });
    return tokens;
  };
  CHECK(continued(1).size() == 20);
  CHECK(continued(1) == continued(1));
  CHECK(continued(1) != continued(2));
  int emitted = 0;
  sample(model, {1, 2, 3}, {.num_tokens = 20, .seed = 1},
         [&](std::int64_t) { return ++emitted < 3; });
  CHECK(emitted == 3);
  CHECK(model.training());
  CHECK_THROWS_WITH_AS(sample(model, {}, {.num_tokens = 1}, {}),
                       doctest::Contains("the prompt needs at least one token"), ConfigError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
