#include "tools/train/train_step.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include <doctest/doctest.h>

#include "runtime/autograd/meta.h"
#include "runtime/base/error.h"
#include "tests/support/gpt2_run.h"

using namespace fsdptrain;
using testing::Gpt2Run;
using testing::tiny_gpt2;
using tools::random_batch;

namespace {

data::Batch masked_batch() {
  data::Batch batch = random_batch(2, 20, 101, 2);
  std::ranges::fill(batch.targets, kIgnoredTarget);
  batch.num_targets = 0;
  return batch;
}

constexpr nn::Recompute kPolicies[] = {nn::Recompute::None, nn::Recompute::Selective,
                                       nn::Recompute::Full};

// The bits of the losses, norms and gradients of some steps, and of the parameters after them.
std::vector<std::byte> train_bits(int threads, Isa isa, DType compute, int steps,
                                  nn::Recompute recompute = nn::Recompute::None) {
  RankContext context({.threads = threads, .isa = isa});
  const ContextGuard guard(context);
  Gpt2Run run(tiny_gpt2(), Device::cpu(), compute, recompute);
  std::vector<std::byte> bits;
  const auto append = [&](const Tensor& tensor) {
    const auto bytes = tensor.bytes();
    bits.insert(bits.end(), bytes.begin(), bytes.end());
  };
  for (int step = 0; step < steps; ++step) {
    const auto result = run.train(static_cast<std::uint64_t>(step), 3, 37);
    append(result.loss);
    append(result.grad_norm);
    for (const nn::FlatChunk& chunk : run.sharded->chunks()) {
      append(chunk.gradients);
    }
  }
  for (const nn::FlatChunk& chunk : run.sharded->chunks()) {
    append(chunk.parameters);
  }
  return bits;
}

// Resident memory of this process in KiB.
long resident_kib() {
  long pages = 0;
  long resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) {
      resident = 0;
    }
    std::fclose(file);
  }
  return resident * 4;
}

// The allocator's counters after construction and after each of two steps.
std::vector<MemoryCounters> measure(const models::Gpt2Config& config, Device device, DType compute,
                                    std::int64_t rows, std::int64_t seq_len,
                                    nn::Recompute recompute = nn::Recompute::None) {
  RankContext context({.threads = 2});
  const ContextGuard guard(context);
  Allocator& allocator = context.allocator(device);
  std::vector<MemoryCounters> counters;
  Gpt2Run run(config, device, compute, recompute);
  counters.push_back(allocator.counters());
  for (std::uint64_t step = 0; step < 2; ++step) {
    allocator.reset_peaks();
    run.train(step, rows, seq_len);
    counters.push_back(allocator.counters());
  }
  return counters;
}

void compare_counters(const models::Gpt2Config& config, DType compute, std::int64_t rows,
                      std::int64_t seq_len, nn::Recompute recompute) {
  const auto planned = measure(config, Device::meta(), compute, rows, seq_len, recompute);
  const auto real = measure(config, Device::cpu(), compute, rows, seq_len, recompute);
  for (std::size_t phase = 0; phase < planned.size(); ++phase) {
    CAPTURE(phase);
    for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
      CAPTURE(category);
      CHECK(planned[phase].live[category] == real[phase].live[category]);
      CHECK(planned[phase].peak[category] == real[phase].peak[category]);
    }
    CHECK(planned[phase] == real[phase]);
  }
  CHECK(real[2].peak_of(MemoryCategory::Activation) > 0);
  // From step 2 on the cache serves every request.
  CHECK(real[2].raw_allocations == real[1].raw_allocations);
}

}  // namespace

TEST_SUITE("integration/train_step") {
  TEST_CASE("twenty steps give the same bits for 1, 2, 3 and 5 threads and on every run") {
    for (const Isa isa : supported_isas()) {
      for (const DType compute : {DType::Float32, DType::BFloat16}) {
        CAPTURE(name_of(isa));
        CAPTURE(name_of(compute));
        const auto expected = train_bits(1, isa, compute, 20);
        for (const int threads : {1, 2, 3, 5}) {
          CAPTURE(threads);
          CHECK(train_bits(threads, isa, compute, 20) == expected);
        }
      }
    }
  }

  TEST_CASE("recomputation changes no bit of twenty steps with dropout") {
    const Isa isa = supported_isas().back();
    for (const DType compute : {DType::Float32, DType::BFloat16}) {
      const auto expected = train_bits(2, isa, compute, 20);
      CHECK(train_bits(2, isa, compute, 20, nn::Recompute::Selective) == expected);
      CHECK(train_bits(2, isa, compute, 20, nn::Recompute::Full) == expected);
    }
  }

  TEST_CASE("a step that fails in its backward leaves nothing, and its repetition is a clean one") {
    for (const nn::Recompute recompute : kPolicies) {
      RankContext context({.threads = 2});
      const ContextGuard guard(context);
      std::vector<std::vector<double>> results;
      for (const bool failing : {false, true}) {
        Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32, recompute);
        run.train(0, 2, 20);
        if (failing) {
          const MemoryCounters before = context.allocator(Device::cpu()).counters();
          // Known halfway through the backward: the last weight of the first block.
          const auto parameters = run.model.parameters();
          const auto found =
              std::ranges::find(parameters, "h.0.mlp.c_proj.weight", &nn::Parameter::name);
          auto& hooks = found->tensor->autograd_meta()->post_accumulate_hooks;
          hooks.emplace_back([] { fail("no luck"); });
          CHECK_THROWS_WITH_AS(run.train(1, 2, 20), doctest::Contains("no luck"), Error);
          hooks.clear();
          run.sharded->reset_iter_state();
          CHECK(context.allocator(Device::cpu()).counters().live == before.live);
        }
        const auto result = run.train(1, 2, 20);
        std::vector<double>& values = results.emplace_back();
        values = testing::all_values(*run.sharded);
        values.push_back(result.loss.item());
        values.push_back(result.grad_norm.item());
      }
      CHECK(results[0] == results[1]);
    }
  }

  TEST_CASE("full recomputation of GPT-2 124M takes at most 0.35 of the activations of none") {
    std::vector<double> peaks;
    for (const nn::Recompute recompute : kPolicies) {
      const auto counters = measure(*models::gpt2_preset("gpt2-124m"), Device::meta(),
                                    DType::Float32, 1, 1024, recompute);
      peaks.push_back(static_cast<double>(counters[2].peak_of(MemoryCategory::Activation)));
    }
    MESSAGE("peak activations of 1 x 1024 tokens in MB, none, selective, full: "
            << peaks[0] * 1e-6 << ", " << peaks[1] * 1e-6 << ", " << peaks[2] * 1e-6);
    CHECK(peaks[2] <= 0.35 * peaks[0]);
    CHECK(peaks[2] < peaks[1]);
    CHECK(peaks[1] < 0.5 * peaks[0]);
  }

  TEST_CASE("the loss falls on a batch that is seen again and again") {
    Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
    const data::Batch batches[] = {random_batch(2, 20, run.vocab, 0)};
    const double first = run.train(batches, 0, 3e-3).loss.item();
    double last = first;
    for (std::uint64_t step = 1; step < 60; ++step) {
      last = run.train(batches, step, 3e-3).loss.item();
    }
    CHECK(last < 0.5 * first);
  }

  TEST_CASE("a micro-batch without targets adds nothing") {
    const auto gradient_norm = [](std::span<const data::Batch> batches) {
      models::Gpt2Config config = tiny_gpt2();
      config.dropout = 0;
      Gpt2Run run(config, Device::cpu(), DType::Float32);
      return run.step.forward_backward(batches, 0).grad_norm.item();
    };
    const data::Batch parts[] = {random_batch(2, 20, 101, 0), masked_batch()};
    CHECK(gradient_norm(parts) == gradient_norm({parts, 1}));
  }

  TEST_CASE("a step without targets updates nothing") {
    Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
    run.train(0, 2, 20);
    const data::Batch masked = masked_batch();
    const auto values = [&run] { return testing::all_values(*run.sharded); };
    const auto before = values();
    const auto result = run.step.forward_backward({&masked, 1}, 1);
    CHECK_FALSE(result.loss.defined());
    CHECK_FALSE(result.grad_norm.defined());
    CHECK(values() == before);
    CHECK(run.train(2, 2, 20).loss.defined());
  }

  TEST_CASE("a step on meta counts the bytes of a real one exactly: tiny GPT-2") {
    for (const nn::Recompute recompute : kPolicies) {
      compare_counters(tiny_gpt2(), DType::Float32, 3, 37, recompute);
      compare_counters(tiny_gpt2(), DType::BFloat16, 3, 37, recompute);
    }
  }

  TEST_CASE("a step on meta counts the bytes of a real one exactly: GPT-2 124M") {
    compare_counters(*models::gpt2_preset("gpt2-124m"), DType::Float32, 1, 48, nn::Recompute::None);
  }

  TEST_CASE("a step of GPT-2 1558M on meta takes no memory") {
    const long before = resident_kib();
    const auto counters =
        measure(*models::gpt2_preset("gpt2-1558m"), Device::meta(), DType::Float32, 4, 1024);
    CHECK(resident_kib() - before < 64 * 1024);
    // Parameters, gradients and two moments in float32, gaps and size classes included.
    CHECK(counters[0].live_of(MemoryCategory::Parameter) >= 4 * std::int64_t{1557611200});
    CHECK(counters[0].live_of(MemoryCategory::Parameter) <= 4 * std::int64_t{1557611200} / 8 * 9);
    CHECK(counters[0].live_of(MemoryCategory::Optimizer) ==
          2 * counters[0].live_of(MemoryCategory::Gradient));
    CHECK(counters[2].peak_total > 16 * std::int64_t{1557611200});
  }
}
