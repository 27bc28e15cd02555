#include "tools/run/reporter.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1024.0 * 1024.0;
constexpr const char* kStandardOutput = "standard output";

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// A model need not write UTF-8: what is none becomes U+FFFD.
std::string as_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string as_duration(double seconds) {
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

void Reporter::open(const RunFolder& folder, const Options& options) {
  options_ = options;
  metrics_path_ = folder.metrics().string();
  samples_path_ = folder.samples().string();
  const bool goes_on = options.attempt > 1;
  const auto mode = goes_on ? JsonLinesWriter::Mode::Append : JsonLinesWriter::Mode::New;
  metrics_.emplace(folder.metrics(), mode);
  if (options.samples) {
    samples_.emplace(folder.samples(), mode);
  }
  progress_.emplace("train", static_cast<std::uint64_t>(options.steps), ProgressUnit::Turns);
  if (goes_on) {
    event({{"step", options.resumed_step},
           {"event", "resume"},
           {"checkpoint", options.checkpoint.empty() ? Json() : Json(options.checkpoint)}});
  }
}

void Reporter::progress(std::int64_t steps_done) {
  if (progress_) {
    progress_->update(static_cast<std::uint64_t>(steps_done));
  }
}

void Reporter::clear_progress() {
  if (progress_) {
    progress_->clear();
  }
}

template <class Write>
void Reporter::attempt_to(const std::string& what, const Write& write) {
  if (!metrics_) {
    return;
  }
  try {
    write();
  } catch (const IoError& error) {
    if (std::ranges::find(failed_, what) == failed_.end()) {
      failed_.push_back(what);
      warning(fmt::format("{}: the run goes on{}", error.what(),
                          what == kStandardOutput ? ": see " + metrics_path_ : ""));
    }
  }
}

void Reporter::line(const std::string& text) {
  clear_progress();
  attempt_to(kStandardOutput, [&] { print_now(text + "\n"); });
}

void Reporter::warning(const std::string& text) {
  if (metrics_) {
    clear_progress();
    log_warning("{}", text);
  }
}

void Reporter::step(const Step& step) {
  line(fmt::format(
      "step {:>6}/{}  loss {:.4f}  lr {:.2e}  grad norm {:.3f}  {:.0f} tok/s  "
      "{}memory {:.0f}/{:.0f} MiB  left {}",
      step.step, options_.steps, step.loss, step.lr, step.grad_norm, step.tokens_per_second,
      step.utilization ? fmt::format("{:.1f} % of rate  ", 100 * *step.utilization) : "",
      static_cast<double>(step.memory_live) / kMiB, static_cast<double>(step.memory_peak) / kMiB,
      as_duration(step.seconds_left)));
  const std::optional<WaitSummary>& waits = step.waits;
  event({{"step", step.step},
         {"loss", step.loss},
         {"lr", step.lr},
         {"grad_norm", step.grad_norm},
         {"tokens_per_second", step.tokens_per_second},
         {"utilization", or_null(step.utilization)},
         {"memory_live_bytes", step.memory_live},
         {"memory_peak_bytes", step.memory_peak},
         {"seconds", step.seconds},
         {"wait_seconds", waits ? Json(waits->wait_seconds) : Json()},
         {"waited_for_seconds", waits ? Json(waits->waited_for_seconds) : Json()},
         {"straggler", waits ? or_null(waits->straggler) : Json()}});
}

void Reporter::validation(std::int64_t step, double loss) {
  line(fmt::format("step {:>6}/{}  validation loss {:.4f}", step, options_.steps, loss));
  event({{"step", step}, {"validation_loss", loss}});
}

void Reporter::checkpoint(std::int64_t step, const std::string& folder) {
  line(fmt::format("step {:>6}/{}  checkpoint in {}", step, options_.steps, folder));
}

void Reporter::sample(const Sample& sample) {
  // Quoted: a text may hold line ends, and what would command a terminal.
  line(fmt::format("step {:>6}/{}  sample {} + {}", sample.step, options_.steps,
                   as_text(sample.prompt), as_text(sample.text)));
  attempt_to(samples_path_, [&] {
    samples_->write(as_text({{"attempt", options_.attempt},
                             {"step", sample.step},
                             {"prompt", sample.prompt},
                             {"text", sample.text},
                             {"seed", sample.seed}}));
  });
}

void Reporter::event(const Json& line) {
  Json whole{{"attempt", options_.attempt}};
  whole.update(line);
  attempt_to(metrics_path_, [&] { metrics_->write(as_text(whole)); });
}

void Reporter::check_complete(const std::string& weights) {
  clear_progress();
  check<IoError>(failed_.empty(), "{} could not be written in full during the run: {} is complete",
                 fmt::join(failed_, " and "), weights);
}

}  // namespace fsdptrain::tools
