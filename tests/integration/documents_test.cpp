#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/autograd/engine.h"
#include "runtime/base/random.h"
#include "tests/support/sharded_decoder.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"
#include "tools/train/batch_tensors.h"

using namespace fsdptrain;

namespace {

constexpr std::uint16_t kEnd = 60;
constexpr std::int64_t kSeqLen = 90;

std::unique_ptr<models::Decoder> make_gpt2(std::int64_t window) {
  models::Gpt2Config config;
  config.vocab_size = 61;
  config.max_seq_len = kSeqLen;
  config.num_layers = 2;
  config.num_heads = 2;
  config.embed_dim = 24;
  config.window = window;
  return std::make_unique<models::Gpt2>(config);
}

std::unique_ptr<models::Decoder> make_llama(std::int64_t window) {
  models::LlamaConfig config;
  config.vocab_size = 61;
  config.max_seq_len = kSeqLen;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.embed_dim = 24;
  config.head_dim = 6;
  config.ffn_dim = 32;
  config.window = window;
  return std::make_unique<models::Llama>(config);
}

// Documents of 1 to 29 tokens, the last of which is the end, until they fill more than one window.
std::vector<std::vector<std::int64_t>> random_documents() {
  std::vector<std::vector<std::int64_t>> documents;
  std::int64_t total = 0;
  for (std::uint64_t number = 0; total <= kSeqLen; ++number) {
    auto& document = documents.emplace_back();
    const std::uint32_t length = philox(number, 1, 9).word[0] % 29;
    for (std::uint64_t position = 0; position < length; ++position) {
      document.push_back(philox(position, number, 10).word[0] % kEnd);
    }
    document.push_back(kEnd);
    total += static_cast<std::int64_t>(document.size());
  }
  return documents;
}

struct LossAndGradients {
  double loss = 0;
  std::vector<double> gradients;
};

// The sum of losses over rows, and the gradient of that sum.
template <class Rows>
LossAndGradients run(const Rows& rows, std::unique_ptr<models::Decoder> model) {
  testing::LoneRanks ranks;
  const auto sharded =
      testing::shard_decoder(*model, ranks.group(), {.dtype = DType::Float64, .seed = 5});
  LossAndGradients result;
  for (const auto& [tokens, targets] : rows) {
    const Tensor loss = model->loss(tokens, targets, {});
    result.loss += loss.item();
    autograd::backward(loss);
  }
  result.gradients = testing::all_gradients(*sharded);
  return result;
}

using Rows = std::vector<std::pair<models::TokenRows, Tensor>>;

// The first window of a file that holds the documents one after the other.
Rows packed_row(const std::vector<std::vector<std::int64_t>>& documents, bool split) {
  std::vector<std::uint16_t> stream;
  for (const auto& document : documents) {
    stream.insert(stream.end(), document.begin(), document.end());
  }
  const testing::TemporaryFolder folder;
  const auto source = testing::make_token_file(folder / "t", stream, 61, kEnd);
  const data::TokenDataset dataset(source, kSeqLen, {0, stream.size()}, split);
  const data::Batch batch = data::sequential_batch(dataset, 0, 1);
  return {{tools::rows_of(batch, Device::cpu()), tools::targets_of(batch, Device::cpu())}};
}

// Every document as a row of its own, as far as it lies in the window.
Rows rows_of_documents(const std::vector<std::vector<std::int64_t>>& documents) {
  Rows rows;
  std::int64_t left = kSeqLen;
  for (const auto& document : documents) {
    const auto size = static_cast<std::int64_t>(document.size());
    const std::int64_t inputs = std::min(left, size);
    left -= inputs;
    if (inputs == 0) {
      break;
    }
    std::vector<std::int64_t> tokens(document.begin(), document.begin() + inputs);
    std::vector<std::int64_t> targets(tokens.size(), kIgnoredTarget);
    for (std::size_t i = 0; i < tokens.size() && i + 1 < document.size(); ++i) {
      targets[i] = document[i + 1];
    }
    rows.emplace_back(models::one_document(Tensor::from<std::int64_t>(tokens, {1, inputs})),
                      Tensor::from<std::int64_t>(targets, {1, inputs}));
  }
  return rows;
}

}  // namespace

TEST_SUITE("integration/documents") {
  TEST_CASE("documents packed into one window have the loss and gradients of each alone") {
    const auto documents = random_documents();
    REQUIRE(documents.size() > 5);
    for (const auto make : {make_gpt2, make_llama}) {
      for (const std::int64_t window : {0, 5}) {
        CAPTURE(window);
        const LossAndGradients packed = run(packed_row(documents, true), make(window));
        const LossAndGradients alone = run(rows_of_documents(documents), make(window));
        CHECK(packed.loss == doctest::Approx(alone.loss).epsilon(1e-12));
        double difference = 0;
        double norm = 0;
        for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
          difference = std::hypot(difference, packed.gradients[i] - alone.gradients[i]);
          norm = std::hypot(norm, alone.gradients[i]);
        }
        CHECK(norm > 0);
        CHECK(difference <= 1e-12 * norm);
        // Without the split the model sees across: another loss.
        const LossAndGradients joined = run(packed_row(documents, false), make(window));
        CHECK(std::abs(joined.loss - alone.loss) > 1e-6 * alone.loss);
      }
    }
  }
}
