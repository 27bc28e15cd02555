#include "tools/train/non_finite_policy.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "tools/train/data_parallel.h"
#include "tools/train/non_finite.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::ordered_json;

// What there is to say of a value: to people, and to programs; null where it was not located.
struct Finding {
  std::string text;
  Json located;
};

Json json_of(const NonFinite& found) {
  return {{"micro_batch", found.micro_batch},
          {"first_sample", found.first_sample},
          {"num_samples", found.num_samples},
          {"rows", found.rows},
          {"module", found.module},
          {"op", found.op},
          {"direction", name_of(found.direction)},
          {"value", value_name(found)},
          {"kind", kind_of(found.value)},
          {"index", found.index},
          {"largest_before", found.largest_before}};
}

Finding not_located(const NonFiniteStep& step) {
  return {
      fmt::format(
          "step {} gave the loss {} and the gradient norm {}, but its forward and backward, run "
          "again, had finite values only: either the norm overflowed, or the machine does not "
          "compute the same twice: test its memory",
          step.number + 1, step.loss, step.grad_norm),
      nullptr};
}

// Of what the ranks find, the one in the earliest micro-batch, as one rank with all of them would.
Finding locate(const NonFiniteStep& step) {
  std::optional<NonFinite> mine = locate_non_finite(step.train_step, step.share, step.number);
  Json message;
  if (mine) {
    mine->micro_batch =
        global_micro_batch(mine->micro_batch, {step.world.rank(), step.world.size()});
    message = {{"text", describe(*mine)}, {"located", json_of(*mine)}};
  }
  Json first;
  for (const std::string& text : step.world.exchange(message.dump())) {
    const Json theirs = Json::parse(text);
    if (!theirs.is_null() &&
        (first.is_null() || theirs["located"]["micro_batch"] < first["located"]["micro_batch"])) {
      first = theirs;
    }
  }
  return first.is_null() ? not_located(step) : Finding{first["text"], first["located"]};
}

Json event_line(const NonFiniteStep& step, const Finding& finding, bool stops) {
  return {{"step", step.number + 1},           {"event", "non_finite"},
          {"action", stops ? "stop" : "skip"}, {"loss", step.loss},
          {"grad_norm", step.grad_norm},       {"text", finding.text},
          {"located", finding.located}};
}

}  // namespace

void NonFinitePolicy::react(const NonFiniteStep& step, Reporter& reporter,
                            const std::function<void()>& save_weights) {
  const std::string bad = non_finite_parameter(step.model);
  const bool stops = !skips_ || !bad.empty() || ++skipped_in_a_row_ >= limit_;
  const Finding finding = locate(step);
  reporter.event(event_line(step, finding, stops));
  const std::string& text = finding.text;
  if (!stops) {
    reporter.warning(fmt::format("{}: no update; {} of at most {} skipped in a row", text,
                                 skipped_in_a_row_, limit_));
    return;
  }
  if (bad.empty()) {
    save_weights();
  }
  // A rank that fails ends the others wherever they are: not before all is written.
  step.world.control().issue(comm::barrier()).wait();
  check(bad.empty(),
        "train: {}: parameter {} is not finite since an earlier update, so no weights were "
        "written: lower optimizer.lr",
        text, bad);
  check(!skips_,
        "train: {}: this is skip {} in a row, the limit of train.non_finite_limit: lower "
        "optimizer.lr, lengthen schedule.warmup_steps or set train.grad_clip; the weights from "
        "before the step are written",
        text, skipped_in_a_row_);
  fail(
      "train: {}: lower optimizer.lr, lengthen schedule.warmup_steps, set train.grad_clip, or "
      "leave out the updates of such steps with train.non_finite = \"skip\"; the weights from "
      "before the step are written",
      text);
}

}  // namespace fsdptrain::tools
