#include <optional>

#include "tools/bench/bench.h"
#include "tools/bench/step_model.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {

Report bench_step_comparison(Config config, StepComparison comparison, int rounds) {
  const bool by_dtype = comparison == StepComparison::Dtype;
  if (by_dtype) {
    config.train.compute_dtype = "float32";
  } else {
    config.train.micro_batch = 1;
  }
  StepModel model(config);
  std::optional<StepModel> other;
  data::Batch other_batch;
  if (by_dtype) {
    Config changed = config;
    changed.train.compute_dtype = "bfloat16";
    other.emplace(changed);
  } else {
    other_batch = random_batch(8, config.train.seq_len, config.model.vocab_size);
  }
  const auto times =
      interleave("bench step",
                 {{"step", [&] { return model.run(); }},
                  {"other", [&] { return other ? other->run() : model.run(other_batch); }}},
                 rounds);
  const double seconds = median(times[0]);
  const double other_seconds = median(times[1]);
  Report report = new_report("step");
  if (by_dtype) {
    report.figures = {{"float32_step", seconds, "s"},
                      {"bfloat16_step", other_seconds, "s"},
                      {"bfloat16_over_float32", seconds / other_seconds, "speed", 0.85}};
  } else {
    report.figures = {
        {"step_1_sequence", seconds, "s"},
        {"step_8_sequences", other_seconds, "s"},
        {"time_per_sequence_8_over_1", other_seconds / 8 / seconds, "ratio", std::nullopt, 1.05}};
  }
  return report;
}

}  // namespace fsdptrain::tools
