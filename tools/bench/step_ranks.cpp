#include "tools/bench/step_ranks.h"

#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/meta/meta_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/comm_parts.h"
#include "tools/bench/one_process_step.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/rank_copy.h"
#include "tools/bench/rank_turns.h"
#include "tools/bench/sharded_step.h"
#include "tools/bench/step_bounds.h"
#include "tools/bench/timing.h"
#include "tools/launch/cores.h"

namespace fsdptrain::tools {
namespace {

constexpr std::int64_t kCopyBytes = 64 << 20;
// Sums of parts are rounded in another order, those of bfloat16 more so.
constexpr double kLossTolerance = 0.01;

// Processors of all ranks together, as their launcher has given them out.
std::vector<int> cores_of_all(comm::World& world) {
  std::vector<int> all;
  const std::string own = fmt::format("{}", fmt::join(usable_processors(), ","));
  for (const std::string& text : world.exchange(own)) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      all.push_back(parse_number(rest.substr(0, end)).value_or(0));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return all;
}

// Of one rank: counted where no byte is.
CommNumbers bytes_received(const Config& config, const comm::World& world) {
  comm::MetaRanks ranks(world.rank(), world.size());
  ShardedStep step(config, ranks.group());
  const data::Batch batch = rank_batch(config, world.rank());
  // Steps are alike from the second on.
  step.run(batch);
  ranks.reset_traffic();
  step.run(batch);
  return bytes_of_parts(ranks.traffic(), step.loss_group());
}

double sum_of(const CommNumbers& numbers) {
  double sum = 0;
  for (const double number : numbers) {
    sum += number;
  }
  return sum;
}

// Contestants of all ranks, in turns.
class StepRanksBench {
 public:
  StepRanksBench(const Config& config, const StepRanksOptions& options, comm::Job& job)
      : config_(config),
        options_(options),
        world_(job.world()),
        turns_(world_),
        batch_(rank_batch(config, world_.rank())),
        report_(new_report("step")) {
    if (!comm::may_spin(job.membership(), report_.threads)) {
      report_.warnings.push_back(
          fmt::format("{} ranks of {} threads each have fewer processors than that: they wait for "
                      "them, and for each other",
                      world_.size(), report_.threads));
    }
  }

  Report run();

 private:
  void warm_up();
  void start_one_process();
  std::vector<Contestant> contestants();
  double run_sharded();
  void report_no_comm();
  void report_speed();
  void report_comm();
  void report_parts(double copied_per_second);
  double median_of(const std::function<double(const CommSeconds&)>& number) const;
  void add(std::string name, double value, std::string unit,
           std::optional<double> floor = std::nullopt,
           std::optional<double> ceiling = std::nullopt) {
    report_.figures.push_back({std::move(name), value, std::move(unit), floor, ceiling});
  }
  bool is_record(std::int64_t seq_len) const {
    return is_model_of_record(config_) && config_.train.micro_batch == 1 && world_.size() == 2 &&
           report_.threads == 1 && config_.train.seq_len == seq_len;
  }

  const Config& config_;
  const StepRanksOptions& options_;
  comm::World& world_;
  RankTurns turns_;
  data::Batch batch_;
  Report report_;

  std::optional<ShardedStep> sharded_;
  std::optional<CommClock> clock_;
  std::optional<comm::PhantomRanks> phantoms_;
  std::optional<ShardedStep> no_comm_;
  // Of rank 0 alone.
  std::optional<OneProcessStep> one_process_;
  std::optional<RankCopy> copy_;
  CommNumbers bytes_{};
  double peak_bytes_ = 0;

  // Medians of contestants.
  double sharded_seconds_ = 0;
  double sharded_spread_ = 0;
  double no_comm_seconds_ = 0;
  double one_process_seconds_ = 0;
  double copy_seconds_ = 0;
  // Of each sharded step, on this rank.
  std::vector<CommSeconds> comm_;
};

Report StepRanksBench::run() {
  warm_up();
  const auto times =
      interleave(world_.rank() == 0 ? "bench step" : "", contestants(), options_.rounds);
  no_comm_seconds_ = median(times[0]);
  if (options_.no_comm) {
    report_no_comm();
    return std::move(report_);
  }
  sharded_seconds_ = median(times[1]);
  sharded_spread_ = spread(times[1]);
  one_process_seconds_ = median(times[2]);
  copy_seconds_ = median(times[3]);
  // The first round does not count.
  comm_.erase(comm_.begin());
  report_speed();
  report_comm();
  return std::move(report_);
}

void StepRanksBench::warm_up() {
  if (!options_.no_comm) {
    sharded_.emplace(config_, world_.group());
    clock_.emplace(world_, sharded_->loss_group());
    sharded_->run(batch_);
    sharded_->run(batch_);
    start_one_process();
    bytes_ = bytes_received(config_, world_);
    copy_.emplace(kCopyBytes);
  }
  phantoms_.emplace(world_.rank(), world_.size(), Device::cpu());
  no_comm_.emplace(config_, phantoms_->group());
  no_comm_->run(batch_);
  no_comm_->run(batch_);
  if (options_.no_comm) {
    peak_bytes_ = turns_.largest(peak_resident_bytes());
  }
}

// Behind two steps of the others.
void StepRanksBench::start_one_process() {
  // Before memory is taken for anything else.
  peak_bytes_ = turns_.largest(peak_resident_bytes());
  const std::vector<int> cores = cores_of_all(world_);
  turns_.on_rank_0([&] {
    one_process_.emplace(config_, world_.size(), world_.size() * report_.threads, cores);
    one_process_->run();
    const double seconds = one_process_->run();
    const double loss = one_process_->loss();
    check(std::abs(sharded_->loss() - loss) <= kLossTolerance * std::abs(loss),
          "bench step: {} ranks have the loss {} where one process has {}", world_.size(),
          sharded_->loss(), loss);
    return seconds;
  });
}

std::vector<Contestant> StepRanksBench::contestants() {
  std::vector<Contestant> contestants{
      {"no_comm", [this] { return turns_.together([this] { return no_comm_->run(batch_); }); }}};
  if (!options_.no_comm) {
    contestants.push_back({"sharded", [this] { return run_sharded(); }});
    contestants.push_back({"one_process", [this] {
                             return turns_.on_rank_0([this] { return one_process_->run(); });
                           }});
    contestants.push_back(
        {"copy", [this] { return turns_.together([this] { return copy_->run(); }); }});
  }
  return contestants;
}

double StepRanksBench::run_sharded() {
  return turns_.together([this] {
    clock_->read();
    const double seconds = sharded_->run(batch_);
    comm_.push_back(clock_->read());
    return seconds;
  });
}

void StepRanksBench::report_no_comm() {
  add("step_no_comm", no_comm_seconds_, "s");
  add("peak_memory", peak_bytes_ / kMiB, "MiB");
}

void StepRanksBench::report_speed() {
  const auto tokens = static_cast<double>(batch_.batch * batch_.seq_len * world_.size());
  add("step_sharded", sharded_seconds_, "s");
  add("step_spread", sharded_spread_, "of median");
  add("step_no_comm", no_comm_seconds_, "s");
  add("step_one_process", one_process_seconds_, "s");
  add("tokens_per_second", tokens / sharded_seconds_, "tokens/s");
  add("sharded_of_one_process", one_process_seconds_ / sharded_seconds_, "ratio",
      is_record(1024) ? std::optional(0.93) : std::nullopt);
  add("no_comm_of_one_process", one_process_seconds_ / no_comm_seconds_, "ratio");
  add("peak_memory", peak_bytes_ / kMiB, "MiB");
}

void StepRanksBench::report_comm() {
  const double bytes = sum_of(bytes_);
  const double copied_per_second = static_cast<double>(kCopyBytes) / copy_seconds_;
  add("bytes_received", bytes / kMiB, "MiB");
  add("copy_rate", copied_per_second * 1e-9, "GB/s");
  add("comm", sharded_seconds_ - no_comm_seconds_, "s");
  add("comm_floor", bytes / copied_per_second, "s");
  add("comm_over_copy", (sharded_seconds_ - no_comm_seconds_) / (bytes / copied_per_second),
      "ratio", std::nullopt, is_record(128) ? std::optional(1.4) : std::nullopt);
  report_parts(copied_per_second);
}

void StepRanksBench::report_parts(double copied_per_second) {
  double inside = 0;
  for (std::size_t part = 0; part < kNumCommParts; ++part) {
    const std::string name(kCommPartNames[part]);
    const double seconds = median_of([part](const CommSeconds& comm) { return comm.of[part]; });
    inside += seconds;
    add("comm_" + name, seconds, "s");
    add("excess_" + name, seconds - bytes_[part] / copied_per_second, "s");
  }
  add("comm_waited", median_of([](const CommSeconds& comm) { return comm.waited; }), "s");
  add("comm_outside", sharded_seconds_ - no_comm_seconds_ - inside, "s");
}

double StepRanksBench::median_of(const std::function<double(const CommSeconds&)>& number) const {
  std::vector<double> numbers;
  for (const CommSeconds& comm : comm_) {
    numbers.push_back(number(comm));
  }
  return median(std::move(numbers));
}

}  // namespace

Report bench_step_ranks(const Config& config, const StepRanksOptions& options, comm::Job& job) {
  return StepRanksBench(config, options, job).run();
}

}  // namespace fsdptrain::tools
