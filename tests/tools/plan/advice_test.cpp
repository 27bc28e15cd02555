#include "tools/plan/advice.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tools/plan/plan_report.h"

namespace fsdptrain::tools {
namespace {

constexpr std::int64_t kProcess = 1 << 20;

Config small_config(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all{"model.num_layers=4", "model.embed_dim=96", "train.micro_batch=8",
                               "train.global_batch=64", "run.threads=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_config("", "test", all);
}

std::int64_t needed(const std::vector<std::string>& overrides, int world) {
  const Config config = small_config(overrides);
  return needed_memory(config, plan_memory(config, world, 0), kProcess);
}

std::vector<Suggestion> suggestions_for(const std::vector<std::string>& overrides, int world,
                                        std::int64_t limit) {
  const Config config = small_config(overrides);
  return suggestions(config, plan_memory(config, world, 0), limit, kProcess);
}

}  // namespace

TEST_SUITE("tools/plan/advice") {
  TEST_CASE("a plan that fits has no suggestions, and one byte less has") {
    const std::int64_t enough = needed({}, 2);
    CHECK(suggestions_for({}, 2, enough).empty());
    const auto tried = suggestions_for({}, 2, enough - 1);
    REQUIRE(tried.size() == 1);
    CHECK(tried[0].change == "train.recompute = \"selective\"");
    CHECK(tried[0].fits);
    CHECK(tried[0].needed == needed({"train.recompute=selective"}, 2));
    CHECK(tried[0].cost.starts_with("a step computes "));
  }

  TEST_CASE("changes are tried one by one in the order of their costs, up to one that fits") {
    const std::int64_t of_micro_batch = needed({"train.micro_batch=2"}, 2);
    const auto tried = suggestions_for({}, 2, of_micro_batch);
    REQUIRE(tried.size() == 4);
    CHECK(tried[1].change == "train.recompute = \"full\"");
    CHECK(tried[2].change == "train.micro_batch = 4");
    CHECK(tried[3].change == "train.micro_batch = 2");
    for (std::size_t i = 0; i < tried.size(); ++i) {
      CHECK(tried[i].fits == (i + 1 == tried.size()));
      CHECK(tried[i].fits == (tried[i].needed <= of_micro_batch));
    }
    CHECK(tried[3].needed == of_micro_batch);
    CHECK(tried[3].cost.find("16 micro-batches a step instead of 4") != std::string::npos);
    CHECK(tried[3].cost.find("a rank receives ") != std::string::npos);
  }

  TEST_CASE("what no change brings alone is tried together, then with more ranks") {
    const auto together = std::vector<std::string>{"train.recompute=full", "train.micro_batch=1",
                                                   "shard.reshard_after_forward=yes"};
    auto tried = suggestions_for({}, 2, needed(together, 2));
    CHECK(tried.back().fits);
    CHECK(tried.back().change ==
          "train.recompute = \"full\", train.micro_batch = 1, "
          "shard.reshard_after_forward = \"yes\"");
    const std::int64_t on_eight = needed(together, 8);
    tried = suggestions_for({}, 2, on_eight);
    CHECK(tried.back().fits);
    CHECK(tried.back().needed == on_eight);
    CHECK(tried.back().change.ends_with(", --world 8"));
    CHECK(tried.back().cost.find("4 times the ranks") != std::string::npos);
  }

  TEST_CASE("what cannot fit says so, and more ranks than micro-batches are not tried") {
    const auto tried = suggestions_for({}, 2, 1000);
    CHECK_FALSE(tried.back().fits);
    // 64 samples, one each.
    CHECK(tried.back().change.ends_with("--world 64"));
    for (const Suggestion& each : tried) {
      CHECK(each.change.find("--world 128") == std::string::npos);
    }
    const auto none = suggestions_for(
        {"train.recompute=full", "train.micro_batch=1", "train.global_batch=1"}, 1, 1000);
    CHECK(none.empty());
  }

  TEST_CASE("a GPU needs what is in use, a CPU what is kept, with pages of peers and the process") {
    const Config cpu = small_config();
    const Config cuda = small_config({"run.device=cuda"});
    const MemoryPlan plan = plan_memory(cpu, 2, 0);
    CHECK(plan.peer_pages > 0);
    CHECK(needed_memory(cpu, plan, 7) == plan.kept() + plan.peer_pages + 7);
    CHECK(needed_memory(cuda, plan_memory(cuda, 2, 0), 7) == plan.peak());
    // On one rank there is nobody.
    CHECK(plan_memory(cpu, 1, 0).peer_pages == 0);
  }

  TEST_CASE("the report is one JSON object, and a table that says the same") {
    const Config config = small_config();
    const MemoryPlan plan = plan_memory(config, 2, 1);
    PlanReport report{.config = config, .plan = plan, .process = kProcess};
    auto json = nlohmann::json::parse(as_json(report));
    CHECK(json["world"] == 2);
    CHECK(json["rank"] == 1);
    CHECK(json["memory"]["peak_bytes"] == plan.peak());
    CHECK(json["memory"]["peak_phase"] == plan.peak_phase);
    CHECK(json["memory"]["needed_bytes"] == report.needed());
    CHECK(json["memory"]["items"].size() == plan.items.size());
    CHECK(json["memory"]["phases"].size() == plan.phases.size());
    CHECK(json["traffic"][0]["collective"] == "all_gather");
    CHECK(json["traffic"][0]["received_bytes"] == plan.traffic[0].bytes_received);
    CHECK(json["slots"].size() == plan.slots.size());
    CHECK_FALSE(json.contains("limit"));
    CHECK(as_text(report).find("in the backward of h.3\n") != std::string::npos);

    report.limit = report.needed();
    CHECK(report.fits());
    CHECK(as_text(report).find("\nfits: 0.00 KiB of ") != std::string::npos);
    report.limit = report.needed() - 1;
    report.suggestions = suggestions(config, plan, *report.limit, kProcess);
    CHECK_FALSE(report.fits());
    json = nlohmann::json::parse(as_json(report));
    CHECK(json["limit"]["fits"] == false);
    CHECK(json["limit"]["tried"][0]["change"] == "train.recompute = \"selective\"");
    CHECK(json["limit"]["tried"][0]["fits"] == true);
    CHECK(as_text(report).find("does not fit: ") != std::string::npos);
  }
}

}  // namespace fsdptrain::tools
