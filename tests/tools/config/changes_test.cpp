#include "tools/config/changes.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tools/config/fields.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;

// The same field with another value.
Config with_another(const Field& field, const Config& config) {
  Config changed = config;
  struct Change {
    Value operator()(bool value) const { return !value; }
    Value operator()(std::int64_t value) const { return value + 1; }
    Value operator()(double value) const { return value + 0.25; }
    Value operator()(const std::string& value) const { return value + "x"; }
    Value operator()(std::vector<std::string> value) const {
      value.emplace_back("x");
      return value;
    }
    Value operator()(std::vector<double> value) const {
      value.push_back(0.5);
      return value;
    }
  };
  field.assign(changed, std::visit(Change{}, field.value_in(config)));
  return changed;
}

TEST_SUITE_BEGIN("tools/config_changes");

TEST_CASE("every key belongs to one part: a change is named or free, and changes one hash") {
  const Config before;
  const ConfigHash hash = hash_of(before);
  int numeric = 0;
  for (const Field& field : config_fields()) {
    CAPTURE(field.key());
    const Config now = with_another(field, before);
    if (!field.applies(before) || !field.applies(now)) {
      continue;
    }
    const auto changes = numeric_changes(before, now);
    const auto same_key = [&](const ConfigChange& change) { return change.key == field.key(); };
    CHECK(std::ranges::any_of(changes, same_key) == is_numeric(field.key()));
    CHECK((hash_of(now).numerics != hash.numerics) == is_numeric(field.key()));
    CHECK((hash_of(now).operations != hash.operations) == !is_numeric(field.key()));
    numeric += is_numeric(field.key()) ? 1 : 0;
  }
  CHECK(numeric > 25);
  CHECK(numeric_changes(before, before).empty());
}

TEST_CASE("what decides about numbers is this, and no key becomes free unseen") {
  std::vector<std::string> free;
  for (const Field& field : config_fields()) {
    if (!is_numeric(field.key()) && field.section != "eval" && field.section != "comm" &&
        field.section != "checkpoint" && field.section != "log" && field.section != "mesh") {
      free.push_back(field.key());
    }
  }
  CHECK(free == std::vector<std::string>{"run.dir", "run.threads", "run.device", "train.recompute",
                                         "train.non_finite", "train.non_finite_limit",
                                         "shard.reshard_after_forward", "shard.prefetch"});
  CHECK(is_numeric("rules"));
}

TEST_CASE("a key that had no effect before is a change from nothing") {
  Config before;
  before.optimizer.name = "adamw";
  Config now = before;
  now.optimizer.name = "sgd";
  std::vector<std::string> texts;
  for (const ConfigChange& change : numeric_changes(before, now)) {
    texts.push_back(to_string(change));
  }
  CHECK(texts == std::vector<std::string>{"optimizer.name: \"adamw\" is now \"sgd\"",
                                          "optimizer.beta1: 0.9 is now nothing",
                                          "optimizer.beta2: 0.95 is now nothing",
                                          "optimizer.eps: 1e-08 is now nothing",
                                          "optimizer.momentum: nothing is now 0.9"});
}

TEST_CASE("rules change as one, and their order counts") {
  Config before;
  before.rules = {{.match = "a", .freeze = true}, {.match = "b", .lr_scale = 0.5}};
  Config now = before;
  std::ranges::reverse(now.rules);
  CHECK(numeric_changes(before, now).size() == 1);
  CHECK(numeric_changes(before, now)[0].key == "rules");
  CHECK(hash_of(before).numerics != hash_of(now).numerics);
  CHECK(hash_of(before).operations == hash_of(now).operations);
}

TEST_CASE("keys are named in full, by their last part, or by their section") {
  const auto keys = [](const std::vector<std::string>& names) {
    return named_keys(names, "--option");
  };
  using Keys = std::set<std::string>;
  CHECK(keys({}).empty());
  CHECK(keys({"lr", "train.steps"}) == Keys{"optimizer.lr", "train.steps"});
  CHECK(keys({"schedule"}).contains("schedule.warmup_steps"));
  CHECK(keys({"data"}).size() == 5);
  CHECK(keys({"rules"}) == Keys{"rules"});
  CHECK_THROWS_WITH_AS(keys({"lr", "every"}),
                       Contains("--option: every may be eval.every or checkpoint.every or "
                                "log.every: give one"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(keys({"train.step"}), Contains("did you mean train.steps?"), ConfigError);
  CHECK_THROWS_AS(keys({""}), ConfigError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
