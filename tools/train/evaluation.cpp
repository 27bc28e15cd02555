#include "tools/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/ignored_target.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/loader.h"
#include "runtime/nn/evaluation_guard.h"
#include "tools/train/batch_tensors.h"

namespace fsdptrain::tools {
namespace {

std::int64_t count_bytes(const data::Vocabulary& vocabulary, const data::Batch& batch) {
  if (vocabulary.tokenizer != data::kByteTokenizer) {
    return 0;
  }
  return std::ranges::count_if(batch.targets, [](std::int64_t target) {
    return target != kIgnoredTarget && target != data::kByteEndOfDocument;
  });
}

// What a dataset contributes where so many more forwards are allowed.
struct Share {
  std::uint64_t forwards;
  std::uint64_t samples;
};

Share share_of(const data::TokenDataset& dataset, std::uint64_t batch, std::uint64_t left) {
  const std::uint64_t all = dataset.num_samples();
  const std::uint64_t forwards = std::min((all + batch - 1) / batch, left);
  return {forwards, forwards < left ? all : std::min(all, forwards * batch)};
}

// Forwards that may be done, over all datasets.
std::uint64_t max_forwards(const EvaluationOptions& options) {
  return options.max_batches == 0 ? std::numeric_limits<std::uint64_t>::max()
                                  : static_cast<std::uint64_t>(options.max_batches);
}

// One forward: samples [first, first + rows) of a dataset.
struct Forward {
  const data::TokenDataset* dataset;
  std::uint64_t first;
  std::uint64_t rows;
};

std::vector<Forward> forwards_of(
    std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
    const EvaluationOptions& options) {
  const auto step = static_cast<std::uint64_t>(options.batch);
  std::uint64_t left = max_forwards(options);
  std::vector<Forward> forwards;
  for (const auto& dataset : datasets) {
    const Share share = share_of(*dataset, step, left);
    left -= share.forwards;
    for (std::uint64_t first = 0; first < share.samples; first += step) {
      forwards.push_back({dataset.get(), first, std::min(step, share.samples - first)});
    }
  }
  return forwards;
}

LossTotals totals_of(models::Decoder& model, const Forward& forward) {
  const data::Batch batch = data::sequential_batch(*forward.dataset, forward.first,
                                                   static_cast<std::int64_t>(forward.rows));
  const Device device = model.device();
  return {.nats = model.loss(rows_of(batch, device), targets_of(batch, device), {}).item(),
          .num_targets = batch.num_targets,
          .num_bytes = count_bytes(forward.dataset->source().vocabulary(), batch)};
}

void add(LossTotals& totals, const LossTotals& more) {
  totals.nats += more.nats;
  totals.num_targets += more.num_targets;
  totals.num_bytes += more.num_bytes;
}

// The totals of every forward whose number is this rank's modulo the number of ranks.
std::vector<LossTotals> run_forwards(models::Decoder& model, std::span<const Forward> forwards,
                                     const comm::Member& member, const EvaluationOptions& options) {
  const autograd::NoGradGuard no_grad;
  const nn::EvaluationGuard evaluation(model);
  std::vector<LossTotals> each;
  LossTotals so_far;
  const auto size = static_cast<std::size_t>(member.size);
  for (std::size_t first = 0; first < forwards.size(); first += size) {
    const std::size_t number = first + static_cast<std::size_t>(member.rank);
    if (number >= forwards.size()) {
      // The others gather parameters, for which they need this rank.
      totals_of(model, forwards.back());
      break;
    }
    add(so_far, each.emplace_back(totals_of(model, forwards[number])));
    if (options.progress) {
      options.progress(so_far);
    }
  }
  return each;
}

}  // namespace

double LossTotals::perplexity() const {
  return std::exp(mean());
}

double LossTotals::bits_per_byte() const {
  return nats / (static_cast<double>(num_bytes) * std::numbers::ln2);
}

std::uint64_t num_evaluated(std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                            const EvaluationOptions& options) {
  std::uint64_t left = max_forwards(options);
  std::uint64_t samples = 0;
  for (const auto& dataset : datasets) {
    const Share share = share_of(*dataset, static_cast<std::uint64_t>(options.batch), left);
    left -= share.forwards;
    samples += share.samples;
  }
  return samples;
}

LossTotals evaluate(models::Decoder& model,
                    std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                    const EvaluationOptions& options, comm::ProcessGroup& group) {
  const std::vector<Forward> forwards = forwards_of(datasets, options);
  const auto size = static_cast<std::size_t>(group.size());
  const std::vector<LossTotals> mine =
      run_forwards(model, forwards, {group.rank(), group.size()}, options);
  // As many places on every rank, the last of which may stay empty.
  const auto places = static_cast<std::int64_t>((forwards.size() + size - 1) / size);
  const Tensor nats = Tensor::zeros({places}, DType::Float64);
  const Tensor counts = Tensor::zeros({places, 2}, DType::Int64);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    nats.mutable_values<double>()[i] = mine[i].nats;
    counts.mutable_values<std::int64_t>()[2 * i] = mine[i].num_targets;
    counts.mutable_values<std::int64_t>()[2 * i + 1] = mine[i].num_bytes;
  }
  const Tensor all_nats = Tensor::empty({group.size(), places}, DType::Float64);
  const Tensor all_counts = Tensor::empty({group.size(), places, 2}, DType::Int64);
  group.issue(comm::all_gather(all_nats, nats)).wait();
  group.issue(comm::all_gather(all_counts, counts)).wait();
  // In the order of the forwards, so that the bits do not depend on the number of ranks.
  LossTotals totals;
  for (std::size_t number = 0; number < forwards.size(); ++number) {
    const std::size_t place = number % size * static_cast<std::size_t>(places) + number / size;
    add(totals, {.nats = all_nats.values<double>()[place],
                 .num_targets = all_counts.values<std::int64_t>()[2 * place],
                 .num_bytes = all_counts.values<std::int64_t>()[2 * place + 1]});
  }
  return totals;
}

}  // namespace fsdptrain::tools
