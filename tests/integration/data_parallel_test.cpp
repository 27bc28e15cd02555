#include "tools/train/data_parallel.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/optim/adamw.h"
#include "tests/support/gpt2_run.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"
#include "tools/run/reporter.h"
#include "tools/train/evaluation.h"
#include "tools/train/non_finite_policy.h"

using namespace fsdptrain;

namespace {

constexpr std::int64_t kSeqLen = 20;
constexpr std::int64_t kMicroBatch = 2;
// Four ranks get 1, 1, 2 and 2 of them, and have 2 places each.
constexpr std::int64_t kNumMicroBatches = 6;
constexpr std::uint64_t kGlobalBatch = kMicroBatch * kNumMicroBatches;
constexpr std::uint64_t kSteps = 30;
constexpr std::uint16_t kEnd = 100;

using MakeModel = std::function<std::unique_ptr<models::Decoder>()>;

std::unique_ptr<models::Decoder> make_gpt2() {
  return std::make_unique<models::Gpt2>(testing::tiny_gpt2());
}

std::unique_ptr<models::Decoder> make_llama() {
  models::LlamaConfig config;
  config.vocab_size = 101;
  config.max_seq_len = kSeqLen;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.embed_dim = 24;
  config.head_dim = 6;
  config.ffn_dim = 32;
  return std::make_unique<models::Llama>(config);
}

// Documents of 1 to 40 tokens: micro-batches have unequal numbers of targets.
std::shared_ptr<const data::TokenDataset> ragged_tokens(const testing::TemporaryFolder& folder) {
  std::vector<std::uint16_t> tokens;
  for (std::uint64_t document = 0; tokens.size() < 4000; ++document) {
    const std::uint32_t length = philox(document, 1, 9).word[0] % 40;
    for (std::uint64_t position = 0; position < length; ++position) {
      tokens.push_back(static_cast<std::uint16_t>(philox(position, document, 10).word[0] % 17));
    }
    tokens.push_back(kEnd);
  }
  return std::make_shared<const data::TokenDataset>(
      testing::make_token_file(folder / "t", tokens, 101, kEnd), kSeqLen,
      data::TokenRange{0, tokens.size()});
}

data::Loader make_loader(std::shared_ptr<const data::TokenDataset> dataset) {
  return {{{.dataset = std::move(dataset)}},
          {.seed = 3,
           .global_batch = static_cast<std::int64_t>(kGlobalBatch),
           .micro_batch = kMicroBatch}};
}

// What one rank of a training in float64 has.
struct Rank {
  Rank(const MakeModel& make, comm::World& world_of_all)
      : world(world_of_all),
        model(make()),
        sharded(
            testing::shard_decoder(*model, world.group(), {.dtype = DType::Float64, .seed = 3})),
        optimizer(sharded->chunks(), {}),
        step(*model, *sharded, optimizer, {.grad_clip = 1.0}),
        data_parallel(step, *sharded, world) {
    current_context().random.seed = 3;
  }

  comm::Member member() const { return {world.rank(), world.size()}; }

  comm::World& world;
  std::unique_ptr<models::Decoder> model;
  std::unique_ptr<shard::ShardedModel> sharded;
  optim::AdamW optimizer;
  tools::TrainStep step;
  tools::DataParallelStep data_parallel;
};

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

// What a rank saw of a training.
struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  // By step: the first samples of the micro-batches that have targets.
  std::vector<std::vector<std::uint64_t>> samples;
  // On rank 0: all of them.
  std::vector<double> parameters;
};

std::vector<double> whole_parameters(shard::ShardedModel& sharded) {
  std::vector<double> all;
  for (const shard::ParameterPart& part : shard::parts_of(sharded)) {
    const Tensor whole = shard::gather_to(0, part, part.chunk, sharded.ranks());
    if (whole.defined()) {
      const auto values = whole.to_vector();
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

std::vector<Course> train(const MakeModel& make, const data::Loader& loader, int num_ranks) {
  std::vector<Course> courses(static_cast<std::size_t>(num_ranks));
  comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
    Rank rank(make, world);
    Course& course = courses[static_cast<std::size_t>(world.rank())];
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const auto batches = tools::micro_batches_of_rank(loader, step, rank.member());
      auto& samples = course.samples.emplace_back();
      for (const data::Batch& batch : batches) {
        if (batch.num_targets > 0) {
          samples.push_back(batch.first_sample);
        }
      }
      const auto result =
          rank.data_parallel.forward_backward(rank.data_parallel.share_of(batches), step);
      course.losses.push_back(result.loss.item());
      course.norms.push_back(result.grad_norm.item());
      rank.step.update(3e-3);
    }
    course.parameters = whole_parameters(*rank.sharded);
  });
  return courses;
}

double relative_difference(double a, double b) {
  return std::abs(a - b) / std::abs(b);
}

}  // namespace

TEST_SUITE("integration/data_parallel") {
  TEST_CASE("ranks are a step's micro-batches in turn, and its losses those of one rank") {
    const testing::TemporaryFolder folder;
    const data::Loader loader = make_loader(ragged_tokens(folder));
    for (const MakeModel& make : {MakeModel(make_gpt2), MakeModel(make_llama)}) {
      const Course expected = train(make, loader, 1).front();
      REQUIRE(expected.losses.back() < expected.losses.front() - 0.3);
      for (const int num_ranks : {2, 3, 4}) {
        CAPTURE(num_ranks);
        const std::vector<Course> courses = train(make, loader, num_ranks);
        const auto stride = static_cast<std::uint64_t>(num_ranks);
        for (std::uint64_t rank = 0; rank < stride; ++rank) {
          CAPTURE(rank);
          const Course& course = courses[rank];
          for (std::uint64_t step = 0; step < kSteps; ++step) {
            CAPTURE(step);
            std::vector<std::uint64_t> samples;
            for (std::uint64_t g = rank; g < kNumMicroBatches; g += stride) {
              samples.push_back(step * kGlobalBatch + g * kMicroBatch);
            }
            CHECK(course.samples[step] == samples);
            CHECK(relative_difference(course.losses[step], expected.losses[step]) <= 1e-12);
            CHECK(relative_difference(course.norms[step], expected.norms[step]) <= 1e-10);
          }
          CHECK(course.losses == courses[0].losses);
        }
        const std::vector<double>& parameters = courses[0].parameters;
        REQUIRE(parameters.size() == expected.parameters.size());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          REQUIRE(std::abs(parameters[i] - expected.parameters[i]) <= 1e-9);
        }
      }
    }
  }

  TEST_CASE("one rank computes the bits of a step without ranks") {
    const testing::TemporaryFolder folder;
    const data::Loader loader = make_loader(ragged_tokens(folder));
    comm::run_ranks({}, [&](comm::World& world) {
      Rank rank(make_gpt2, world);
      Rank alone(make_gpt2, world);
      std::vector<data::Batch> batches;
      for (std::int64_t index = 0; index < kNumMicroBatches; ++index) {
        batches.push_back(loader.micro_batch(7, index));
      }
      const auto share =
          rank.data_parallel.share_of(tools::micro_batches_of_rank(loader, 7, rank.member()));
      CHECK(share.num_targets == tools::whole_step(batches).num_targets);
      const auto actual = rank.data_parallel.forward_backward(
          {.micro_batches = batches, .num_targets = share.num_targets}, 7);
      const auto expected = alone.step.forward_backward(batches, 7);
      CHECK(bytes_of(actual.loss) == bytes_of(expected.loss));
      CHECK(bytes_of(actual.grad_norm) == bytes_of(expected.grad_norm));
      CHECK(testing::all_gradients(*rank.sharded) == testing::all_gradients(*alone.sharded));
    });
  }

  TEST_CASE("a micro-batch that a step does not have is its last one, masked, and adds zero") {
    const testing::TemporaryFolder folder;
    const data::Loader loader = make_loader(ragged_tokens(folder));
    comm::run_ranks({}, [&](comm::World& world) {
      // As rank 3 of 4, whose second place is empty.
      const auto batches = tools::micro_batches_of_rank(loader, 2, {.rank = 3, .size = 4});
      REQUIRE(batches.size() == 2);
      const data::Batch last = loader.micro_batch(2, kNumMicroBatches - 1);
      CHECK(batches[0].num_targets > 0);
      CHECK(batches[1].tokens == last.tokens);
      CHECK(batches[1].first_sample == last.first_sample);
      CHECK(batches[1].num_targets == 0);
      Rank both(make_gpt2, world);
      Rank one(make_gpt2, world);
      const Tensor loss = both.step.accumulate({.micro_batches = batches, .num_targets = 55}, 2);
      const Tensor expected =
          one.step.accumulate({.micro_batches = {batches.data(), 1}, .num_targets = 55}, 2);
      CHECK(loss.item() == expected.item());
      CHECK(testing::all_gradients(*both.sharded) == testing::all_gradients(*one.sharded));
    });
  }

  TEST_CASE("a step whose targets are all masked is one on every rank, and updates nothing") {
    comm::run_ranks({.num_ranks = 2}, [](comm::World& world) {
      Rank rank(make_llama, world);
      data::Batch batch = tools::random_batch(1, kSeqLen, 101);
      std::fill(batch.targets.begin(), batch.targets.end(), kIgnoredTarget);
      batch.num_targets = 0;
      const auto share = rank.data_parallel.share_of({&batch, 1});
      CHECK(share.num_targets == 0);
      CHECK_FALSE(rank.data_parallel.forward_backward(share, 0).loss.defined());
    });
  }

  TEST_CASE("an evaluation has the same bits on any number of ranks") {
    const testing::TemporaryFolder folder;
    const std::vector<std::shared_ptr<const data::TokenDataset>> datasets{ragged_tokens(folder)};
    for (const std::int64_t max_batches : {0, 7, 1}) {
      CAPTURE(max_batches);
      const tools::EvaluationOptions options{.batch = 3, .max_batches = max_batches};
      tools::LossTotals expected;
      comm::run_ranks({}, [&](comm::World& world) {
        const Rank rank(make_gpt2, world);
        expected = tools::evaluate(*rank.model, datasets, options, world.control());
      });
      REQUIRE(expected.num_targets > 0);
      for (const int num_ranks : {1, 2, 3, 4}) {
        CAPTURE(num_ranks);
        comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
          const Rank rank(make_gpt2, world);
          const auto totals = tools::evaluate(*rank.model, datasets, options, world.control());
          CHECK(totals.nats == expected.nats);
          CHECK(totals.num_targets == expected.num_targets);
        });
      }
    }
  }

  TEST_CASE("all ranks name the first value of the step that is not finite, on whichever it is") {
    const testing::TemporaryFolder folder;
    const data::Loader loader = make_loader(ragged_tokens(folder));
    tools::TrainConfig config;
    config.non_finite = "stop";
    for (const int num_ranks : {1, 2, 4}) {
      CAPTURE(num_ranks);
      std::atomic<int> saved = 0;
      const auto errors = comm::try_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
        Rank rank(make_gpt2, world);
        // In micro-batches 3 and 4 of step 1.
        rank.model->blocks()[0]->add_hooks(
            {.pre_forward = {}, .post_forward = [](nn::Module::Tensors& outputs) {
               const std::uint64_t first = current_context().random.first_sample;
               if (first == kGlobalBatch + 6 || first == kGlobalBatch + 8) {
                 outputs[0].set_item(1, std::nan(""));
               }
             }});
        const auto batches = tools::micro_batches_of_rank(loader, 1, rank.member());
        const auto share = rank.data_parallel.share_of(batches);
        const auto result = rank.data_parallel.forward_backward(share, 1);
        tools::Reporter silent;
        tools::NonFinitePolicy policy(config);
        policy.react({rank.step, *rank.sharded, share, world, 1, result.loss.item(),
                      result.grad_norm.item()},
                     silent, [&] {
                       // All ranks give their parts of the weights.
                       CHECK(whole_parameters(*rank.sharded).empty() == (world.rank() != 0));
                       ++saved;
                     });
      });
      CHECK(saved == num_ranks);
      for (const std::exception_ptr& error : errors) {
        REQUIRE(error != nullptr);
        CHECK_THROWS_WITH_AS(std::rethrow_exception(error),
                             doctest::Contains("train: step 2, micro-batch 3 (samples 18..19), "
                                               "forward"),
                             Error);
      }
    }
  }

  TEST_CASE("what one rank throws in a step ends all of them, and is what comes out") {
    const testing::TemporaryFolder folder;
    const data::Loader loader = make_loader(ragged_tokens(folder));
    std::vector<int> steps_done(3);
    const auto run = [&] {
      comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
        Rank rank(make_gpt2, world);
        for (std::uint64_t step = 0; step < 6; ++step) {
          const auto batches = tools::micro_batches_of_rank(loader, step, rank.member());
          const auto share = rank.data_parallel.share_of(batches);
          check<DataError>(world.rank() != 2 || step != 4, "planted on rank {}", world.rank());
          rank.data_parallel.forward_backward(share, step);
          rank.step.update(1e-3);
          ++steps_done[static_cast<std::size_t>(world.rank())];
        }
      });
    };
    CHECK_THROWS_WITH_AS(run(), doctest::Contains("planted on rank 2"), DataError);
    CHECK(steps_done == std::vector<int>{4, 4, 4});
  }
}
