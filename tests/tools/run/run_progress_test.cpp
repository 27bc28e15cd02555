#include "tools/run/run_progress.h"

#include <string>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tools/config/changes.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;

RunProgress some_progress() {
  return {.samples = std::int64_t{1} << 60,
          .tokens = 5,
          .lr = 0.1,
          .best_loss = 1.0 / 3,
          .best_step = 4,
          .validated_step = 8,
          .skipped_in_a_row = 2};
}

TEST_SUITE_BEGIN("tools/run/run_progress");

TEST_CASE("progress reads back to the same bits, with a best loss and without") {
  for (const bool has_best : {true, false}) {
    RunProgress saved = some_progress();
    if (!has_best) {
      saved.best_loss = std::nullopt;
    }
    RunProgress loaded;
    const std::string text = SavedProgress(saved).state().dump();
    SavedProgress(loaded).load(nlohmann::json::parse(text));
    CHECK(loaded == saved);
  }
}

TEST_CASE("progress that lacks something, or has another type, is an error and changes nothing") {
  RunProgress progress = some_progress();
  const nlohmann::json good = SavedProgress(progress).state();
  for (const auto& [key, value] : good.items()) {
    CAPTURE(key);
    nlohmann::json lacks = good;
    lacks.erase(key);
    nlohmann::json other = good;
    other[key] = "text";
    RunProgress loaded;
    for (const nlohmann::json& bad : {lacks, other, nlohmann::json()}) {
      CHECK_THROWS_WITH_AS(SavedProgress(loaded).load(bad), Contains("is damaged"), DataError);
      CHECK(loaded == RunProgress{});
    }
  }
}

TEST_CASE("a checkpoint of a configuration that the run never had is refused") {
  Config config;
  Config other = config;
  other.optimizer.lr = 0.5;
  SavedConfig now(config, {hash_of(config).numerics});
  now.load(now.state());
  SavedConfig saved_by_other(other, {});
  CHECK_THROWS_WITH_AS(now.load(saved_by_other.state()), Contains("is of another run"),
                       ConfigError);
  SavedConfig changed(config, {hash_of(config).numerics, hash_of(other).numerics});
  changed.load(saved_by_other.state());
  CHECK_THROWS_AS(now.load({{"toml", ""}}), DataError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
