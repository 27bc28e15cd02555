#include "tools/plan/advice.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "tools/plan/byte_size.h"
#include "tools/train/flops.h"
#include "tools/train/model_sizes.h"

namespace fsdptrain::tools {
namespace {

// A run as it might be.
struct Variant {
  Config config;
  int world = 1;
  std::vector<std::string> changes = {};
};

// Of the operations of a step, what recomputation of blocks adds: their forward, without attention
// where its outputs are kept.
double recomputed_percent(const Config& config) {
  const ModelConfig& model = config.model;
  if (config.train.recompute == "none") {
    return 0;
  }
  const double head = static_cast<double>(model.vocab_size) * static_cast<double>(model.embed_dim);
  const double weights = multiplying_weights(model);
  const double step = flops_per_token(config);
  // Three products for each weight, one of which is the forward; the rest of a step is attention.
  const double attention = (step - 6 * weights) / 3;
  const double forward = 2 * (weights - head);
  return 100 * (config.train.recompute == "full" ? forward + attention : forward) / step;
}

class Search {
 public:
  Search(const Config& config, const MemoryPlan& plan, std::int64_t limit, std::int64_t process)
      : config_(config), plan_(plan), limit_(limit), process_(process) {}

  std::vector<Suggestion> run() && {
    if (needed_memory(config_, plan_, process_) > limit_ && !try_singly()) {
      try_together();
    }
    return std::move(tried_);
  }

 private:
  using Change = bool (Search::*)(Variant& variant) const;

  Variant unchanged() const { return {config_, plan_.world}; }

  // Each changes a variant by one step; false where there is none left.
  bool recompute_some(Variant& variant) const {
    return recompute(variant, "selective", variant.config.train.recompute == "none");
  }
  bool recompute_all(Variant& variant) const {
    return recompute(variant, "full", variant.config.train.recompute != "full");
  }
  bool recompute(Variant& variant, const char* policy, bool is_more) const {
    if (is_more) {
      variant.config.train.recompute = policy;
      variant.changes.push_back(fmt::format("train.recompute = \"{}\"", policy));
    }
    return is_more;
  }
  bool shrink_micro_batch(Variant& variant) const {
    std::int64_t& micro_batch = variant.config.train.micro_batch;
    if (micro_batch == 1) {
      return false;
    }
    std::int64_t divisor = 2;
    while (micro_batch % divisor != 0) {
      ++divisor;
    }
    micro_batch /= divisor;
    set_last(variant, "train.micro_batch = ", fmt::format("{}", micro_batch));
    return true;
  }
  bool reshard(Variant& variant) const {
    const bool may = variant.config.shard.reshard_after_forward != "yes" && variant.world > 1;
    if (may) {
      variant.config.shard.reshard_after_forward = "yes";
      variant.changes.emplace_back("shard.reshard_after_forward = \"yes\"");
    }
    return may;
  }
  bool add_ranks(Variant& variant) const {
    const TrainConfig& train = variant.config.train;
    const MeshConfig& mesh = variant.config.mesh;
    const bool may = 2 * std::int64_t{variant.world} <= train.global_batch / train.micro_batch &&
                     mesh.shard == 0 && mesh.replicate == 1;
    if (may) {
      variant.world *= 2;
      set_last(variant, "--world ", fmt::format("{}", variant.world));
    }
    return may;
  }
  // A change of the same key replaces the one before.
  static void set_last(Variant& variant, const std::string& key, const std::string& value) {
    std::erase_if(variant.changes, [&](const std::string& text) { return text.starts_with(key); });
    variant.changes.push_back(key + value);
  }

  bool try_singly() {
    for (const Change once : {&Search::recompute_some, &Search::recompute_all}) {
      if (Variant variant = unchanged(); (this->*once)(variant) && fits(variant)) {
        return true;
      }
    }
    for (const Change change :
         {&Search::shrink_micro_batch, &Search::reshard, &Search::add_ranks}) {
      Variant variant = unchanged();
      while ((this->*change)(variant)) {
        if (fits(variant)) {
          return true;
        }
      }
    }
    return false;
  }

  void try_together() {
    Variant variant = unchanged();
    recompute_all(variant);
    while (shrink_micro_batch(variant)) {
    }
    reshard(variant);
    if (variant.changes.size() > 1 && fits(variant)) {
      return;
    }
    while (add_ranks(variant)) {
      if (variant.changes.size() > 1 && fits(variant)) {
        return;
      }
    }
  }

  bool fits(const Variant& variant) {
    const auto threads = variant.world == plan_.world ? std::optional(plan_.threads) : std::nullopt;
    const MemoryPlan plan = plan_memory(variant.config, variant.world, plan_.rank, threads);
    Suggestion& suggestion = tried_.emplace_back();
    suggestion.change = fmt::format("{}", fmt::join(variant.changes, ", "));
    suggestion.cost = cost_of(variant, plan);
    suggestion.needed = needed_memory(variant.config, plan, process_);
    suggestion.fits = suggestion.needed <= limit_;
    return suggestion.fits;
  }

  std::string cost_of(const Variant& variant, const MemoryPlan& plan) const {
    std::vector<std::string> costs;
    const double more = recomputed_percent(variant.config) - recomputed_percent(config_);
    if (more > 0) {
      costs.push_back(fmt::format("a step computes {:.0f} % more", more));
    }
    if (variant.world > plan_.world) {
      costs.push_back(fmt::format("{} times the ranks", variant.world / plan_.world));
    }
    if (plan.num_micro_batches > plan_.num_micro_batches) {
      costs.push_back(fmt::format("{} micro-batches a step instead of {}", plan.num_micro_batches,
                                  plan_.num_micro_batches));
    }
    if (plan.bytes_received() > plan_.bytes_received()) {
      costs.push_back(fmt::format("a rank receives {} a step instead of {}",
                                  size_text(plan.bytes_received()),
                                  size_text(plan_.bytes_received())));
    }
    return costs.empty() ? "nothing" : fmt::format("{}", fmt::join(costs, ", "));
  }

  const Config& config_;
  const MemoryPlan& plan_;
  std::int64_t limit_;
  std::int64_t process_;
  std::vector<Suggestion> tried_;
};

}  // namespace

std::int64_t needed_memory(const Config& config, const MemoryPlan& plan, std::int64_t process) {
  if (config.run.device == "cuda") {
    return plan.peak();
  }
  return plan.kept() + plan.peer_pages + process;
}

std::vector<Suggestion> suggestions(const Config& config, const MemoryPlan& plan,
                                    std::int64_t limit, std::int64_t process) {
  return Search(config, plan, limit, process).run();
}

}  // namespace fsdptrain::tools
