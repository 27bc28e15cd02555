#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "runtime/tensor/transfer.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tools/bench/step_model.h"
#include "tools/train/data_parallel.h"

// Training on a GPU that is none, against the same training on the CPU: the kernels are the same,
// so the bits are, unless a wait is missing, and then that is reported.
using namespace fsdptrain;

namespace {

constexpr std::int64_t kSeqLen = 6;
constexpr std::int64_t kRows = 2;
constexpr std::int64_t kMicroBatches = 2;
constexpr std::uint64_t kSteps = 20;

using MakeModel = std::function<std::unique_ptr<models::Decoder>()>;

std::unique_ptr<models::Decoder> make_gpt2() {
  models::Gpt2Config config;
  config.vocab_size = 29;
  config.max_seq_len = 8;
  config.num_layers = 2;
  config.num_heads = 2;
  config.embed_dim = 12;
  config.dropout = 0.1;
  return std::make_unique<models::Gpt2>(config);
}

std::unique_ptr<models::Decoder> make_llama() {
  models::LlamaConfig config;
  config.vocab_size = 29;
  config.max_seq_len = 8;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.embed_dim = 16;
  config.head_dim = 4;
  config.ffn_dim = 20;
  return std::make_unique<models::Llama>(config);
}

struct Setup {
  MakeModel make;
  DType compute = DType::Float32;
  nn::Recompute recompute = nn::Recompute::None;
};

// What a training leaves on one rank.
struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> parameters;

  friend bool operator==(const Course&, const Course&) = default;
};

// One rank's training, on the device of its world.
class Training {
 public:
  Training(const Setup& setup, comm::World& world)
      : world_(world),
        model_(setup.make()),
        parameters_(*model_, {.device = world.device(), .compute_dtype = setup.compute, .seed = 3}),
        optimizer_(parameters_.chunks(), {}),
        step_(*model_, parameters_, optimizer_, world.device(), {.grad_clip = 0.5}),
        data_parallel_(step_, parameters_, world) {
    model_->set_block_recompute(setup.recompute);
    current_context().random.seed = 3;
  }

  void run(std::uint64_t step, Course& course) {
    std::vector<data::Batch> batches;
    for (std::int64_t index = world_.rank(); index < kMicroBatches; index += world_.size()) {
      const auto first =
          (step * kMicroBatches + static_cast<std::uint64_t>(index)) * std::uint64_t{kRows};
      batches.push_back(tools::random_batch(kRows, kSeqLen, model_->vocab_size(), first));
    }
    const auto result = data_parallel_.forward_backward(data_parallel_.share_of(batches), step);
    course.losses.push_back(result.loss.item());
    course.norms.push_back(result.grad_norm.item());
    step_.update(1e-2);
  }

  std::vector<double> parameters() { return parameters_.chunks().front().parameters.to_vector(); }

 private:
  comm::World& world_;
  std::unique_ptr<models::Decoder> model_;
  nn::FlatParameters parameters_;
  optim::AdamW optimizer_;
  tools::TrainStep step_;
  tools::DataParallelStep data_parallel_;
};

Course train(const Setup& setup, comm::World& world) {
  Training training(setup, world);
  Course course;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    training.run(step, course);
  }
  course.parameters = training.parameters();
  return course;
}

std::vector<Course> train_on_cpu(const Setup& setup, int num_ranks) {
  std::vector<Course> courses(static_cast<std::size_t>(num_ranks));
  comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
    courses[static_cast<std::size_t>(world.rank())] = train(setup, world);
  });
  return courses;
}

void expect_same_bits(const Setup& setup, int num_ranks) {
  const std::vector<Course> expected = train_on_cpu(setup, num_ranks);
  CHECK(expected.front().losses.front() != expected.front().losses.back());
  testing::in_all_orders([&](std::uint64_t seed) {
    testing::FakeRanks ranks(num_ranks, seed);
    std::vector<Course> courses(static_cast<std::size_t>(num_ranks));
    ranks.run([&](comm::World& world) {
      courses[static_cast<std::size_t>(world.rank())] = train(setup, world);
    });
    CHECK(courses == expected);
    ranks.expect_clean();
  });
}

}  // namespace

TEST_SUITE("integration/cuda_train") {
  TEST_CASE("GPT-2 trains on the fake device with the bits of the CPU, on one rank and on two") {
    expect_same_bits({.make = make_gpt2}, 1);
    expect_same_bits({.make = make_gpt2}, 2);
  }

  TEST_CASE("Llama trains on the fake device with the bits of the CPU, on one rank and on two") {
    expect_same_bits({.make = make_llama}, 1);
    expect_same_bits({.make = make_llama}, 2);
  }

  TEST_CASE("so it does under bfloat16 with recomputation") {
    expect_same_bits(
        {.make = make_llama, .compute = DType::BFloat16, .recompute = nn::Recompute::Full}, 2);
  }

  TEST_CASE("from the second step on nothing is allocated raw") {
    testing::FakeRanks ranks(2, 3);
    ranks.run([&](comm::World& world) {
      Training training({.make = make_gpt2}, world);
      Course course;
      DeviceContext& device = current_context().device(world.device());
      std::vector<std::int64_t> raw;
      for (std::uint64_t step = 0; step < 5; ++step) {
        training.run(step, course);
        raw.push_back(device.allocator().counters().raw_allocations +
                      device.pinned().counters().raw_allocations);
      }
      CHECK(raw.front() > 0);
      CHECK(raw.back() == raw.front());
    });
    ranks.expect_clean();
  }

  TEST_CASE("a step in which any allocation fails leaves the process able to do it again") {
    const std::uint64_t seed = 3;
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    Course clean;
    {
      testing::FakeRanks ranks(1, seed);
      ranks.run([&](comm::World& world) {
        Training training({.make = make_gpt2}, world);
        first = ranks.session().num_mallocs() + 1;
        training.run(0, clean);
        last = ranks.session().num_mallocs();
        clean.parameters = training.parameters();
      });
      ranks.expect_clean();
    }
    REQUIRE(last > first + 10);
    for (std::uint64_t failing = first; failing <= last; ++failing) {
      CAPTURE(failing);
      // The second one is that of the attempt after the cached blocks went back.
      testing::FakeRanks ranks(1, seed, {}, {.failing_mallocs = {failing, failing + 1}});
      ranks.run([&](comm::World& world) {
        Training training({.make = make_gpt2}, world);
        Course course;
        CHECK_THROWS_WITH_AS(training.run(0, course), doctest::Contains("on stream compute"),
                             OutOfMemoryError);
        course = {};
        training.run(0, course);
        course.parameters = training.parameters();
        CHECK(course == clean);
      });
      ranks.expect_clean();
    }
  }
}
