#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/flight/reader.h"
#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "runtime/tensor/transfer.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/sharded_decoder.h"
#include "tools/bench/step_model.h"
#include "tools/train/data_parallel.h"
#include "tools/train/rank_waits.h"

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
        sharded_(
            testing::shard_decoder(*model_, world.group(), {.compute = setup.compute, .seed = 3})),
        optimizer_(sharded_->chunks(), {}),
        step_(*model_, *sharded_, optimizer_, {.grad_clip = 0.5}),
        data_parallel_(step_, *sharded_, world) {
    model_->set_block_recompute(setup.recompute);
    current_context().random.seed = 3;
  }

  void run(std::uint64_t step, Course& course) {
    const auto batches = batches_of(step);
    const auto result = data_parallel_.forward_backward(data_parallel_.share_of(batches), step);
    course.losses.push_back(result.loss.item());
    course.norms.push_back(result.grad_norm.item());
    step_.update(1e-2);
  }

  // All of a step before anybody looks at its results.
  void run_collectives(std::uint64_t step) {
    const auto batches = batches_of(step);
    data_parallel_.forward_backward(data_parallel_.share_of(batches), step);
  }

  // All of a step that comes before its first collective of gradients.
  void run_backward_only(std::uint64_t step) {
    const auto batches = batches_of(step);
    step_.accumulate(data_parallel_.share_of(batches), step);
  }

  // After a step that failed.
  void reset() { sharded_->reset_iter_state(); }

  std::vector<double> parameters() { return testing::all_values(*sharded_); }

 private:
  std::vector<data::Batch> batches_of(std::uint64_t step) const {
    std::vector<data::Batch> batches;
    for (std::int64_t index = world_.rank(); index < kMicroBatches; index += world_.size()) {
      const auto first =
          (step * kMicroBatches + static_cast<std::uint64_t>(index)) * std::uint64_t{kRows};
      batches.push_back(tools::random_batch(kRows, kSeqLen, model_->vocab_size(), first));
    }
    return batches;
  }

  comm::World& world_;
  std::unique_ptr<models::Decoder> model_;
  std::unique_ptr<shard::ShardedModel> sharded_;
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

// Two ranks, the second of which breaks the third step in this way, before it takes part in it.
std::vector<std::exception_ptr> train_until(
    testing::FakeRanks& ranks,
    const std::function<void(Training& training, comm::World& world)>& break_it) {
  auto errors = ranks.try_run([&](comm::World& world) {
    Training training({.make = make_gpt2}, world);
    Course course;
    for (std::uint64_t step = 0; step < 5; ++step) {
      if (step == 2 && world.rank() == 1) {
        break_it(training, world);
      }
      training.run(step, course);
    }
  });
  ranks.ignore_rest();
  return errors;
}

// The first rank is told who failed and why; it does not hang.
void expect_told(const std::vector<std::exception_ptr>& errors) {
  CHECK(testing::is_a<DataError>(errors[1]));
  CHECK(testing::is_a<comm::PeerError>(errors[0]));
  CHECK(testing::text_of(errors[0]).find("rank 1 failed: no more data") != std::string::npos);
}

}  // namespace

TEST_SUITE("integration/cuda_train") {
  TEST_CASE("a rank that fails between two steps ends the other by its name") {
    testing::in_all_orders([](std::uint64_t seed) {
      testing::FakeRanks ranks(2, seed);
      expect_told(train_until(ranks, [](Training& /*training*/, comm::World& /*world*/) {
        throw DataError("no more data");
      }));
    });
  }

  TEST_CASE("a rank that fails before the gradients meet ends the other by its name") {
    testing::in_all_orders([](std::uint64_t seed) {
      testing::FakeRanks ranks(2, seed);
      expect_told(train_until(ranks, [](Training& training, comm::World& /*world*/) {
        training.run_backward_only(2);
        throw DataError("no more data");
      }));
    });
  }

  TEST_CASE("a collective that breaks on the device ends all ranks before they wait for it") {
    testing::in_all_orders([](std::uint64_t seed) {
      testing::FakeRanks ranks(2, seed);
      fakecuda::plan_nccl_fault({"world/reduce", 1, 10, ncclRemoteError});
      for (const auto& error : train_until(ranks, [](Training&, comm::World&) {})) {
        CHECK(testing::is_a<comm::PeerError>(error));
        CHECK(testing::text_of(error).find("ncclRemoteError") != std::string::npos);
      }
    });
  }

  TEST_CASE("a GPU that breaks in a step ends the other rank by its name") {
    testing::in_all_orders([](std::uint64_t seed) {
      testing::FakeRanks ranks(2, seed, {}, {.broken_op_name = "broken kernel"});
      const auto errors = train_until(ranks, [](Training& /*training*/, comm::World& world) {
        testing::touch("broken kernel", Tensor::empty({4}, DType::Float32, world.device()));
      });
      CHECK(testing::is_a<DeviceError>(errors[1]));
      CHECK(testing::is_a<comm::PeerError>(errors[0]));
      const std::string text = testing::text_of(errors[0]);
      CAPTURE(text);
      CHECK(text.find("rank 1 failed: ") != std::string::npos);
      CHECK(text.find("an illegal memory access was encountered") != std::string::npos);
    });
  }

  TEST_CASE("a step has waited for its collectives, with an eye on the other ranks") {
    testing::in_all_orders([](std::uint64_t seed) {
      testing::FakeRanks ranks(2, seed);
      ranks.run([](comm::World& world) {
        Training training({.make = make_gpt2}, world);
        training.run_collectives(0);
        const auto ring = comm::read_flight_ring(world.flight_ring().memory().descriptor(), "ring");
        CHECK(ring.records.size() > 10);
        for (const comm::FlightRecord& record : ring.records) {
          CHECK(record.state == comm::FlightState::Completed);
        }
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("ranks that issued other collectives update nothing, and are told which") {
    testing::in_all_orders([](std::uint64_t seed) {
      testing::FakeRanks ranks(2, seed);
      const auto errors = ranks.try_run([](comm::World& world) {
        Training training({.make = make_gpt2}, world);
        const std::vector<double> before = training.parameters();
        const Tensor tensor = to_device(Tensor::full({4}, 1), world.device());
        const auto group = static_cast<std::uint32_t>(70 + world.rank());
        world.group().issue(comm::all_reduce(tensor, {}, {.group = group})).wait();
        try {
          Course course;
          training.run(0, course);
        } catch (const comm::CommError&) {
          CHECK(training.parameters() == before);
          throw;
        }
      });
      CHECK(std::ranges::any_of(errors, testing::is_a<comm::MismatchError>));
      for (const auto& error : errors) {
        const std::string text = testing::text_of(error);
        CAPTURE(text);
        CHECK(text.find("rank 1 has not issued what rank 0 has") != std::string::npos);
        CHECK(text.find("group 71") != std::string::npos);
      }
      ranks.ignore_rest();
    });
  }

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

  TEST_CASE("nobody says how long ranks waited for each other on the device") {
    testing::FakeRanks ranks(2, 3);
    ranks.run([](comm::World& world) {
      Training training({.make = make_gpt2}, world);
      tools::RankWaits waits(world);
      Course course;
      training.run(0, course);
      CHECK_FALSE(waits.summary());
    });
    ranks.expect_clean();
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
        training.reset();
        course = {};
        training.run(0, course);
        course.parameters = training.parameters();
        CHECK(course == clean);
      });
      ranks.expect_clean();
    }
  }
}
