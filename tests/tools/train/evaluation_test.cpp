#include "tools/train/evaluation.h"

#include <cmath>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/data/byte_text.h"
#include "tests/support/gpt2_run.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"
#include "tools/train/batch_tensors.h"

namespace fsdptrain::tools {
namespace {

using testing::Gpt2Run;
using testing::tiny_gpt2;
using Datasets = std::vector<std::shared_ptr<const data::TokenDataset>>;

TEST_SUITE_BEGIN("tools/train/evaluation");

std::shared_ptr<const data::TokenDataset> whole(std::shared_ptr<const data::TokenSource> source,
                                                std::int64_t seq_len) {
  const std::uint64_t end = source->num_tokens();
  return std::make_shared<const data::TokenDataset>(std::move(source), seq_len,
                                                    data::TokenRange{0, end});
}

std::vector<std::uint16_t> counting(std::size_t count) {
  std::vector<std::uint16_t> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::uint16_t>(i * i % 97));
  }
  return tokens;
}

TEST_CASE("the totals are those of every sample by itself, over all datasets") {
  const testing::TemporaryFolder folder;
  const Datasets datasets{whole(testing::make_token_file(folder / "a", counting(73), 101), 10),
                          whole(testing::make_token_file(folder / "b", counting(41), 101, 5), 10)};
  Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float64);
  double nats = 0;
  std::int64_t num_targets = 0;
  run.model.set_training(false);
  for (const auto& dataset : datasets) {
    const autograd::NoGradGuard no_grad;
    for (std::uint64_t sample = 0; sample < dataset->num_samples(); ++sample) {
      const data::Batch batch = data::sequential_batch(*dataset, sample, 1);
      nats += run.model.loss(rows_of(batch, Device::cpu()), targets_of(batch, Device::cpu()), {})
                  .item();
      num_targets += batch.num_targets;
    }
  }
  run.model.set_training(true);
  for (const std::int64_t batch : {1, 2, 3, 100}) {
    CAPTURE(batch);
    const LossTotals totals = evaluate(run.model, datasets, {.batch = batch}, run.ranks.group());
    CHECK(totals.num_targets == num_targets);
    CHECK(totals.num_bytes == 0);
    CHECK(totals.nats == doctest::Approx(nats).epsilon(1e-12));
    CHECK(totals.mean() == totals.nats / static_cast<double>(num_targets));
    CHECK(totals.perplexity() == std::exp(totals.mean()));
  }
}

TEST_CASE("exactly max_batches forwards run where there is more data, and progress sees each") {
  const testing::TemporaryFolder folder;
  // 7 and 4 samples: in pairs, forwards of 2, 2, 2, 1, 2 and 2 samples of 10 targets.
  const Datasets datasets{whole(testing::make_token_file(folder / "a", counting(73), 101), 10),
                          whole(testing::make_token_file(folder / "b", counting(41), 101), 10)};
  Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
  std::vector<std::int64_t> targets;
  for (const std::int64_t targets_of_one : {20, 20, 20, 10, 20, 20}) {
    targets.push_back(targets_of_one + (targets.empty() ? 0 : targets.back()));
  }
  for (const std::size_t max_batches : {0, 1, 3, 4, 5, 6, 1000}) {
    CAPTURE(max_batches);
    const bool all = max_batches == 0 || max_batches > targets.size();
    const std::size_t forwards = all ? targets.size() : max_batches;
    std::vector<std::int64_t> seen;
    const EvaluationOptions options{
        .batch = 2,
        .max_batches = static_cast<std::int64_t>(max_batches),
        .progress = [&](const LossTotals& totals) { seen.push_back(totals.num_targets); }};
    const LossTotals totals = evaluate(run.model, datasets, options, run.ranks.group());
    CHECK(seen == std::vector(targets.begin(), targets.begin() + std::ptrdiff_t(forwards)));
    CHECK(totals.num_targets == targets[forwards - 1]);
    CHECK(num_evaluated(datasets, options) ==
          static_cast<std::uint64_t>(targets[forwards - 1] / 10));
  }
}

TEST_CASE("bytes of text are counted but not the ends of documents") {
  const testing::TemporaryFolder folder;
  testing::write_tokens({folder / "t", {data::kByteVocabSize, data::kByteEndOfDocument, "byte"}},
                        {65, 66, 256, 67, 68, 69, 256, 70, 71});
  const Datasets datasets{whole(std::make_shared<data::TokenSource>(folder / "t"), 8)};
  models::Gpt2Config config = tiny_gpt2();
  config.vocab_size = 257;
  Gpt2Run run(config, Device::cpu(), DType::Float32);
  const LossTotals totals = evaluate(run.model, datasets, {}, run.ranks.group());
  // Targets: 66, 256, (67 ignored), 68, 69, 256, (70 ignored), 71.
  CHECK(totals.num_targets == 6);
  CHECK(totals.num_bytes == 4);
  CHECK(totals.bits_per_byte() == doctest::Approx(totals.nats / std::log(2.0) / 4));
}

TEST_CASE("an evaluation leaves the training mode as it was, also when it fails") {
  const testing::TemporaryFolder folder;
  const Datasets good{
      whole(testing::make_token_file(folder / "good", std::vector<std::uint16_t>(50, 7), 101), 10)};
  // The model knows 101 tokens: the lookup of this one fails.
  const Datasets bad{whole(
      testing::make_token_file(folder / "bad", std::vector<std::uint16_t>(50, 200), 201), 10)};
  Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
  for (const bool training : {true, false}) {
    run.model.set_training(training);
    const double nats = evaluate(run.model, good, {.batch = 3}, run.ranks.group()).nats;
    CHECK(run.model.training() == training);
    // Without dropout, the same each time.
    CHECK(evaluate(run.model, good, {.batch = 3}, run.ranks.group()).nats == nats);
    CHECK_THROWS_AS(evaluate(run.model, bad, {.batch = 3}, run.ranks.group()), Error);
    CHECK(run.model.training() == training);
  }
}

TEST_CASE("where every target is masked there is none") {
  const testing::TemporaryFolder folder;
  const Datasets ends{
      whole(testing::make_token_file(folder / "t", std::vector<std::uint16_t>(50, 7), 101, 7), 10)};
  Gpt2Run run(tiny_gpt2(), Device::cpu(), DType::Float32);
  CHECK(evaluate(run.model, ends, {.batch = 3}, run.ranks.group()).num_targets == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
