#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/kernel_profile.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/bench.h"
#include "tools/bench/pool_cost.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/products.h"
#include "tools/bench/step_bounds.h"
#include "tools/bench/step_model.h"
#include "tools/bench/step_parts.h"
#include "tools/bench/timing.h"
#include "tools/machine/fma_roof.h"

namespace fsdptrain::tools {
namespace {

std::int64_t tokens_of(const Config& config) {
  return config.train.micro_batch * config.train.seq_len;
}

std::int64_t raw_allocations() {
  return current_context().allocator(Device::cpu()).counters().raw_allocations;
}

// Of the step that the demands on speed and memory are made for.
bool is_step_of_record(const Config& config) {
  return is_model_of_record(config) && tokens_of(config) == 1024 && config.train.micro_batch == 1;
}

// Steps in turns with their products on the library's threads.
class StepBench {
 public:
  explicit StepBench(const Config& config)
      : config_(config),
        fma_(measure_fma_roof()),
        region_seconds_(measure_pool_region()),
        model_(config),
        products_(step_products(config.model, tokens_of(config))),
        report_(new_report("step")) {}

  Report run(int rounds) {
    warm_up();
    measure(rounds);
    report_speed();
    report_memory();
    report_parts();
    return report_;
  }

 private:
  void warm_up();
  void measure(int rounds);
  double run_measured_step();
  double run_library_products(bool is_head, ProductOperands& operands);
  void report_speed();
  void report_memory();
  void report_parts();
  void add(std::string name, double value, std::string unit,
           std::optional<double> floor = std::nullopt,
           std::optional<double> ceiling = std::nullopt) {
    report_.figures.push_back({std::move(name), value, std::move(unit), floor, ceiling});
  }

  const Config& config_;
  FmaRoof fma_;
  double region_seconds_;
  StepModel model_;
  std::vector<Product> products_;
  Report report_;
  std::int64_t raw_allocations_ = 0;
  double peak_bytes_ = 0;
  KernelProfile profile_;
  std::vector<double> step_seconds_;
  // Of each step of step_seconds_.
  std::vector<std::vector<StepPart>> parts_;
  // Medians of the products of one step by the library; 0 where there is none.
  double linears_roof_ = 0;
  double head_roof_ = 0;
};

void StepBench::warm_up() {
  model_.run();
  const std::int64_t after_first = raw_allocations();
  model_.run();
  raw_allocations_ = raw_allocations() - after_first;
  // Before the roof takes memory of its own.
  peak_bytes_ = peak_resident_bytes();
}

double StepBench::run_measured_step() {
  const std::int64_t before = raw_allocations();
  profile_.reset();
  double seconds = 0;
  {
    const ProfileGuard guard(profile_);
    seconds = model_.run();
  }
  raw_allocations_ += raw_allocations() - before;
  parts_.push_back(step_parts(profile_, seconds));
  return seconds;
}

double StepBench::run_library_products(bool is_head, ProductOperands& operands) {
  double seconds = 0;
  for (const Product& product : products_) {
    if (product.is_head() == is_head) {
      seconds += run_library(product, operands, report_.threads);
    }
  }
  return seconds;
}

void StepBench::measure(int rounds) {
  std::vector<Contestant> contestants{{"step", [this] { return run_measured_step(); }}};
  std::optional<ProductOperands> operands;
  if (has_library_gemm()) {
    operands.emplace(products_);
    for (const bool is_head : {false, true}) {
      contestants.push_back({is_head ? "head" : "linears", [this, is_head, &operands] {
                               return run_library_products(is_head, *operands);
                             }});
    }
  }
  const auto times = interleave("bench step", contestants, rounds);
  step_seconds_ = times[0];
  // interleave() runs one round more, the first, which does not count.
  check(parts_.size() == step_seconds_.size() + 1, "bench step: {} steps were measured, {} timed",
        parts_.size(), step_seconds_.size());
  parts_.erase(parts_.begin());
  if (has_library_gemm()) {
    linears_roof_ = median(times[1]);
    head_roof_ = median(times[2]);
  }
}

void StepBench::report_speed() {
  const double seconds = median(step_seconds_);
  const auto tokens = static_cast<double>(tokens_of(config_));
  add("step", seconds, "s");
  add("step_spread", spread(step_seconds_), "of median");
  add("tokens_per_second", tokens / seconds, "tokens/s");
  add("fma_peak_1_thread", fma_.one_thread * 1e-9, "GFLOP/s");
  add("fma_peak", fma_.all_threads * 1e-9, "GFLOP/s");
  add("step_of_fma_peak", step_flops(config_) / seconds / fma_.all_threads, "share");
  if (has_library_gemm()) {
    const double roof = linears_roof_ + head_roof_;
    add("linears_roof", tokens / roof, "tokens/s");
    add("step_of_linears_roof", roof / seconds, "share",
        is_step_of_record(config_) ? std::optional(0.75) : std::nullopt);
  }
}

void StepBench::report_memory() {
  const bool is_float32 = config_.train.compute_dtype == "float32";
  add("peak_memory", peak_bytes_ / kMiB, "MiB", std::nullopt,
      is_float32 ? std::optional(memory_bound(config_, model_.num_parameters()) / kMiB)
                 : std::nullopt);
  add("raw_allocations_from_step_2", static_cast<double>(raw_allocations_), "blocks", std::nullopt,
      0);
}

void StepBench::report_parts() {
  const double step_seconds = median(step_seconds_);
  for (std::size_t i = 0; i < parts_.front().size(); ++i) {
    const std::string name(parts_.front()[i].name);
    std::vector<double> samples;
    for (const std::vector<StepPart>& parts : parts_) {
      samples.push_back(parts[i].seconds);
    }
    const double seconds = median(samples);
    const double roof = name == "linears" ? linears_roof_ : name == "head" ? head_roof_ : 0;
    add("part_" + name, seconds, "s");
    if (has_library_gemm()) {
      add("gap_" + name, (seconds - roof) / step_seconds, "share");
    }
  }
  // Within the other parts: starting and ending a region on the threads, for each kernel.
  add("part_pool", static_cast<double>(profile_.num_scopes()) * region_seconds_, "s");
}

}  // namespace

Report bench_step(const Config& config, int rounds) {
  return StepBench(config).run(rounds);
}

}  // namespace fsdptrain::tools
