#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/progress.h"
#include "tools/run/json_lines.h"
#include "tools/run/run_folder.h"
#include "tools/train/rank_waits.h"

namespace fsdptrain::tools {

// "0:07" or "1:02:03"
std::string as_duration(double seconds);

// What a run tells about itself while it goes on: lines on standard output, metrics.jsonl and
// samples.jsonl, and on a terminal how far it is. What cannot be written is warned about once, and
// the run goes on: hours of training are worth more than its log.
class Reporter {
 public:
  struct Options {
    std::int64_t attempt = 1;
    // Of the whole run.
    std::int64_t steps = 0;
    bool samples = false;
    // The step that an earlier attempt is gone on from, and its checkpoint: empty where there was
    // none. Lines go behind those that are there.
    std::int64_t resumed_step = 0;
    std::string checkpoint = {};
  };
  struct Step {
    // Steps done.
    std::int64_t step = 0;
    double loss = 0;
    double lr = 0;
    double grad_norm = 0;
    double tokens_per_second = 0;
    // Share of the rate that was measured when the run began; none where it was not.
    std::optional<double> utilization = {};
    std::int64_t memory_live = 0;  // bytes
    std::int64_t memory_peak = 0;
    double seconds = 0;
    double seconds_left = 0;
    // None where nobody measures it.
    std::optional<WaitSummary> waits = {};
  };
  struct Sample {
    std::int64_t step = 0;
    std::string prompt;
    std::string text;
    std::uint64_t seed = 0;
  };

  // Every call does nothing, on a rank that leaves the word to another: until open().
  Reporter() = default;
  Reporter(const RunFolder& folder, const Options& options) { open(folder, options); }

  // IoError if a file cannot be made, or exists at the first attempt.
  void open(const RunFolder& folder, const Options& options);

  void line(const std::string& text);
  void warning(const std::string& text);
  void step(const Step& step);
  void validation(std::int64_t step, double loss);
  void sample(const Sample& sample);
  // A line of metrics.jsonl about anything else: an object, with the step in it.
  void event(const nlohmann::ordered_json& line);
  void progress(std::int64_t steps_done);
  // A checkpoint is there.
  void checkpoint(std::int64_t step, const std::string& folder);

  // IoError naming what could not be written, if anything; `weights` are.
  void check_complete(const std::string& weights);

 private:
  void clear_progress();
  // Calls write(); warns of its IoError unless `what` has failed before.
  template <class Write>
  void attempt_to(const std::string& what, const Write& write);

  Options options_;
  std::string metrics_path_;
  std::string samples_path_;
  // There once it was opened, as is the progress.
  std::optional<JsonLinesWriter> metrics_;
  std::optional<JsonLinesWriter> samples_;
  std::optional<Progress> progress_;
  // What could not be written.
  std::vector<std::string> failed_;
};

}  // namespace fsdptrain::tools
