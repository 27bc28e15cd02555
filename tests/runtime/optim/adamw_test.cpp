#include "runtime/optim/adamw.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/ops/view.h"
#include "tests/support/chunks.h"
#include "tests/support/contexts.h"

namespace fsdptrain::optim {
namespace {

using testing::chunk_of;
using testing::expect_close;
using testing::set_gradients;

// The algorithm of arXiv 1711.05101 as PyTorch writes it, one element at a time in double.
class NaiveAdamW {
 public:
  NaiveAdamW(const nn::FlatChunk& chunk, const AdamW::Options& options)
      : parameters(chunk.parameters.to_vector()),
        options_(options),
        m_(parameters.size()),
        v_(parameters.size()),
        steps_(chunk.segments.size()) {}

  void step(const nn::FlatChunk& chunk, double lr, double scale) {
    for (std::size_t s = 0; s < chunk.segments.size(); ++s) {
      const nn::Segment& segment = chunk.segments[s];
      if (!segment.active) {
        continue;
      }
      ++steps_[s];
      for (std::int64_t position = segment.begin; position < segment.end; ++position) {
        const auto i = static_cast<std::size_t>(position);
        const double g = chunk.gradients.item(position) * scale;
        const double rate = lr * segment.lr_scale;
        if (segment.decay) {
          parameters[i] -= rate * options_.weight_decay * parameters[i];
        }
        m_[i] = options_.beta1 * m_[i] + (1 - options_.beta1) * g;
        v_[i] = options_.beta2 * v_[i] + (1 - options_.beta2) * g * g;
        const double m_hat = m_[i] / (1 - std::pow(options_.beta1, steps_[s]));
        const double v_hat = v_[i] / (1 - std::pow(options_.beta2, steps_[s]));
        parameters[i] -= rate * m_hat / (std::sqrt(v_hat) + options_.eps);
      }
    }
  }

  std::vector<double> parameters;
  const std::vector<double>& exp_avg() const { return m_; }
  const std::vector<double>& exp_avg_sq() const { return v_; }

 private:
  AdamW::Options options_;
  std::vector<double> m_;
  std::vector<double> v_;
  std::vector<int> steps_;
};

constexpr AdamW::Options kOptions{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.3};

}  // namespace

TEST_SUITE("runtime/optim/adamw") {
  TEST_CASE_TEMPLATE("five steps equal the formula in double", T, float, double) {
    testing::for_each_isa([] {
      std::vector<nn::FlatChunk> chunks{chunk_of(13, kDTypeOf<T>, 1), chunk_of(1, kDTypeOf<T>, 2)};
      AdamW optimizer(chunks, kOptions);
      std::vector<NaiveAdamW> naive{{chunks[0], kOptions}, {chunks[1], kOptions}};
      for (std::uint64_t step = 0; step < 5; ++step) {
        for (std::size_t c = 0; c < 2; ++c) {
          set_gradients(chunks[c], 10 * step + c);
          // The last parameter of the first chunk sits out two steps.
          chunks[c].segments[2].active = c == 1 || (step != 1 && step != 2);
        }
        const double scale = step == 3 ? 0.25 : 1.0;
        const Tensor factor = Tensor::of({scale}, DType::Float64);
        optimizer.step(chunks, 0.01, step == 3 ? factor : Tensor());
        for (std::size_t c = 0; c < 2; ++c) {
          naive[c].step(chunks[c], 0.01, scale);
          const double tolerance = kDTypeOf<T> == DType::Float64 ? 1e-14 : 1e-6;
          expect_close(chunks[c].parameters, naive[c].parameters, tolerance);
          expect_close(optimizer.states()[2 * c].values, naive[c].exp_avg(), tolerance);
          expect_close(optimizer.states()[2 * c + 1].values, naive[c].exp_avg_sq(), tolerance);
        }
      }
      CHECK(chunks[0].segments[0].step == 5);
      CHECK(chunks[0].segments[2].step == 3);
      CHECK(chunks[1].segments[2].step == 5);
    });
  }

  TEST_CASE("an inactive segment and the gaps keep every bit") {
    std::vector<nn::FlatChunk> chunks{chunk_of(13, DType::Float32, 1)};
    AdamW optimizer(chunks, kOptions);
    set_gradients(chunks[0], 5);
    // Garbage that nobody may read.
    chunks[0].gradients.set_item(13, std::nan(""));
    chunks[0].segments[1].active = false;
    const std::vector<double> before = chunks[0].parameters.to_vector();
    optimizer.step(chunks, 0.1, {});
    const std::vector<double> after = chunks[0].parameters.to_vector();
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool updated = (i >= 7 && i < 12) || (i >= 28 && i < 41);
      CAPTURE(i);
      CHECK((after[i] != before[i]) == updated);
    }
    CHECK(chunks[0].segments[1].step == 0);
    CHECK(optimizer.states()[0].values.item(13) == 0);
  }

  TEST_CASE("states are named, as long as their chunk and counted as optimizer memory") {
    const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
    const std::int64_t before = counters.live_of(MemoryCategory::Optimizer);
    const std::vector<nn::FlatChunk> chunks{chunk_of(1000, DType::Float32, 1)};
    const AdamW optimizer(chunks, {});
    const std::vector<State> states = optimizer.states();
    REQUIRE(states.size() == 2);
    CHECK(states[0].name == "exp_avg");
    CHECK(states[1].name == "exp_avg_sq");
    CHECK(states[1].chunk == 0);
    CHECK(states[1].values.shape() == chunks[0].parameters.shape());
    CHECK(counters.live_of(MemoryCategory::Optimizer) - before ==
          2 * static_cast<std::int64_t>(size_class(2026 * 4)));
  }

  TEST_CASE("large segments give the same bits for any number of threads") {
    std::vector<nn::FlatChunk> original{chunk_of(70001, DType::Float32, 1)};
    set_gradients(original[0], 2);
    testing::check_same_bits([&] {
      std::vector<nn::FlatChunk> chunks = original;
      chunks[0].parameters = ops::clone(original[0].parameters);
      AdamW optimizer(chunks, {});
      optimizer.step(chunks, 0.01, {});
      optimizer.step(chunks, 0.01, {});
      return std::vector<Tensor>{chunks[0].parameters, optimizer.states()[1].values};
    });
  }
}

}  // namespace fsdptrain::optim
