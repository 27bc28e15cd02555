#include "tools/train/non_finite_policy.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/threads/thread_boards.h"
#include "comm/world.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "tests/support/gpt2_run.h"
#include "tests/support/temporary_folder.h"

using namespace fsdptrain;
using testing::Gpt2Run;
using testing::tiny_gpt2;
using tools::NonFinitePolicy;
using tools::random_batch;

namespace {

tools::TrainConfig policy_config(const char* non_finite, std::int64_t limit) {
  tools::TrainConfig config;
  config.non_finite = non_finite;
  config.non_finite_limit = limit;
  return config;
}

tools::RunFolder make_run_folder(const std::filesystem::path& dir) {
  tools::Config config;
  config.run.dir = dir;
  tools::RunFolder folder = tools::RunFolder::claim(config, {});
  folder.open();
  return folder;
}

// A run whose second block's gradients become NaN in even steps.
struct Run {
  explicit Run(const char* non_finite, std::int64_t limit = 10)
      : gpt2(tiny_gpt2(), Device::cpu(), DType::Float32),
        policy(policy_config(non_finite, limit)),
        run_folder(make_run_folder(folder / "run")),
        reporter(run_folder, {}) {
    gpt2.model.blocks()[1]->add_hooks(
        {.pre_forward = {}, .post_forward = [](nn::Module::Tensors& outputs) {
           const bool bad = current_context().random.step % 2 == 0;
           outputs[0] = autograd::record(
               "planted", outputs[0].detach(), {outputs[0]},
               [bad](const Tensor& dy, autograd::GradientSink&) -> autograd::Gradients {
                 return {bad ? Tensor::full(dy.shape(), std::nan("")) : dy};
               });
         }});
  }

  // As a trainer does it.
  void step(std::uint64_t number) {
    const data::Batch batch = random_batch(2, 9, 101, 2 * number);
    const auto result = gpt2.step.forward_backward({&batch, 1}, number);
    const double norm = result.grad_norm.item();
    if (!std::isfinite(norm) || !std::isfinite(result.loss.item())) {
      policy.react({gpt2.step, *gpt2.sharded, tools::whole_step({&batch, 1}), world, number,
                    result.loss.item(), norm},
                   reporter, [this] { ++saved; });
      return;
    }
    policy.passed();
    gpt2.step.update(1e-3);
  }

  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(run_folder.metrics());
    for (std::string line; std::getline(file, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }

  testing::TemporaryFolder folder;
  comm::ThreadBoards boards{1};
  comm::World world{boards.connect(0, true), {}};
  Gpt2Run gpt2;
  NonFinitePolicy policy;
  tools::RunFolder run_folder;
  tools::Reporter reporter;
  int saved = 0;
};

}  // namespace

TEST_SUITE("integration/non_finite_policy") {
  TEST_CASE("stop locates the value, writes the event and the weights, and says what to try") {
    Run run("stop");
    run.step(1);
    CHECK_THROWS_WITH_AS(
        run.step(4),
        doctest::Contains("train: step 5, micro-batch 0 (samples 8..9), backward of \"planted\" in "
                          "h.1: gradient of input 0 has nan at [0, 0, 0], in samples 8, 9; the"),
        Error);
    CHECK(run.saved == 1);
    const auto events = run.events();
    REQUIRE(events.size() == 1);
    CHECK(events[0]["step"] == 5);
    CHECK(events[0]["event"] == "non_finite");
    CHECK(events[0]["action"] == "stop");
    CHECK(events[0]["loss"].is_number());
    CHECK(events[0]["grad_norm"].is_null());
    const auto& located = events[0]["located"];
    CHECK(located["micro_batch"] == 0);
    CHECK(located["first_sample"] == 8);
    CHECK(located["num_samples"] == 2);
    CHECK(located["rows"] == std::vector<int>{0, 1});
    CHECK(located["module"] == "h.1");
    CHECK(located["op"] == "planted");
    CHECK(located["direction"] == "backward");
    CHECK(located["value"] == "gradient of input 0");
    CHECK(located["kind"] == "nan");
    CHECK(located["index"] == std::vector<int>{0, 0, 0});
  }

  TEST_CASE("the text of a stop names what to change and that the weights are there") {
    Run run("stop");
    for (const char* part :
         {"lower optimizer.lr", "schedule.warmup_steps", "train.grad_clip",
          "train.non_finite = \"skip\"", "the weights from before the step are written"}) {
      CHECK_THROWS_WITH_AS(run.step(2), doctest::Contains(part), Error);
    }
  }

  TEST_CASE("skip goes on, until there are as many in a row as the limit says") {
    Run run("skip", 3);
    for (const std::uint64_t number : {2, 4, 5, 6, 8}) {
      CHECK_NOTHROW(run.step(number));
    }
    CHECK(run.saved == 0);
    CHECK_THROWS_WITH_AS(run.step(10),
                         doctest::Contains("this is skip 3 in a row, the limit of "
                                           "train.non_finite_limit"),
                         Error);
    CHECK(run.saved == 1);
    std::vector<std::string> actions;
    for (const auto& event : run.events()) {
      actions.push_back(event["action"]);
    }
    CHECK(actions == std::vector<std::string>{"skip", "skip", "skip", "skip", "stop"});
  }

  TEST_CASE("weights that are not finite are never written, and no skip goes on with them") {
    for (const char* non_finite : {"stop", "skip"}) {
      Run run(non_finite);
      Tensor values = testing::values_of(*run.gpt2.sharded, "h.0.ln_1.weight");
      values.set_item(3, std::numeric_limits<double>::infinity());
      run.gpt2.sharded->bump_epoch();
      CHECK_THROWS_WITH_AS(run.step(1),
                           doctest::Contains("parameter h.0.ln_1.weight is not finite since an "
                                             "earlier update, so no weights were written"),
                           Error);
      CHECK(run.saved == 0);
      CHECK(run.events().at(0)["action"] == "stop");
    }
  }

  TEST_CASE("a step that is finite when it runs again has an event that locates nothing") {
    Run run("skip");
    bool first = true;
    run.gpt2.model.add_hooks(
        {.pre_forward = {}, .post_forward = [&first](nn::Module::Tensors& outputs) {
           if (std::exchange(first, false)) {
             outputs[0].set_item(0, std::nan(""));
           }
         }});
    run.step(1);
    const auto events = run.events();
    REQUIRE(events.size() == 1);
    CHECK(events[0]["located"].is_null());
    CHECK(events[0]["text"].get<std::string>().find("run again, had finite values only") !=
          std::string::npos);
  }
}
