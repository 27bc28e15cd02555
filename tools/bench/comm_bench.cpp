#include <algorithm>
#include <fmt/format.h>
#include <functional>

#include "runtime/base/error.h"
#include "tools/bench/bench.h"
#include "tools/bench/comm_ranks.h"
#include "tools/bench/timing.h"
#include "tools/launch/cores.h"
#include "tools/progress.h"

namespace fsdptrain::tools {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// Of one turn of a task, all repeats together; large ones run once.
constexpr std::int64_t kTurnBytes = 64 * kMiB;
constexpr std::int32_t kMostRepeats = 32;

// What is demanded of 2 ranks at these sizes, of 4 on the same 2 cores, and of 2 on gloo.
constexpr std::int64_t kDemandedMegabytes[] = {1, 16, 64};
constexpr double kLeastAllocated = 0.8;
constexpr double kLeastPlain = 0.45;
constexpr double kLeastOfTwiceAsMany = 0.4;
constexpr double kLeastOverGloo = 3;
constexpr double kLeastOfLibrary = 0.75;

// Samples that count where so many are left.
constexpr std::size_t kLeastSamples = 5;

// The samples of one thing.
class Samples {
 public:
  void add(std::int64_t nanoseconds, bool was_preempted) {
    const double seconds = static_cast<double>(nanoseconds) * 1e-9;
    all_.push_back(seconds);
    if (!was_preempted) {
      undisturbed_.push_back(seconds);
    }
  }
  double median_of_all() const { return median(all_); }
  // Of those in which all ranks kept their processors, where there are some: on a machine that does
  // other work too, the others say how it shares its processors.
  double median_undisturbed() const {
    return median(undisturbed_.size() >= kLeastSamples ? undisturbed_ : all_);
  }

 private:
  std::vector<double> all_;
  std::vector<double> undisturbed_;
};

// One task on some ranks.
struct Series {
  CommRanks* ranks;
  CommTask task;
  Samples floor = {};
  Samples op = {};

  void take_turn(bool counts) {
    for (const CommTimes& time : ranks->run(task)) {
      if (counts) {
        floor.add(time.floor_end - time.floor_begin, time.floor_was_preempted);
        op.add(time.end - time.begin, time.was_preempted);
      }
    }
  }
};

CommTask task_of(CommOp op, CommMemory memory, std::int64_t megabytes) {
  const std::int64_t nbytes = megabytes * kMiB;
  return {.op = op,
          .memory = memory,
          .repeats = static_cast<std::int32_t>(
              std::clamp<std::int64_t>(kTurnBytes / nbytes, 1, kMostRepeats)),
          .nbytes = nbytes};
}

// What a rank must get from others.
double received_bytes(const Series& series) {
  const CommOp op = series.task.op;
  const bool is_sharded =
      op == CommOp::AllGather || op == CommOp::ReduceScatter || op == CommOp::LibraryAllGather;
  return static_cast<double>(series.task.nbytes) * (is_sharded ? series.ranks->size() - 1 : 1);
}

// Bytes that a rank receives in a second.
double rate(const Series& series) {
  return received_bytes(series) / series.op.median_undisturbed();
}

// Ranks that share processors are always preempted: all samples count on both sides.
double rate_ratio(const Series& a, const Series& b) {
  return received_bytes(a) / a.op.median_of_all() / (received_bytes(b) / b.op.median_of_all());
}

std::string figure_name(const CommTask& task) {
  return task.op == CommOp::Barrier ? "barrier"
                                    : fmt::format("{}.{}.{}MiB", name_of(task.op),
                                                  name_of(task.memory), task.nbytes / kMiB);
}

class CommBench {
 public:
  CommBench(int num_ranks, const std::vector<std::int64_t>& megabytes)
      : cores_(cores_for(num_ranks)),
        ranks_(CommBackend::Shm, num_ranks, cores_, max_nbytes(megabytes)),
        twice_as_many_(CommBackend::Shm, 2 * num_ranks, cores_, max_nbytes(megabytes)),
        on_gloo_(CommBackend::Gloo, num_ranks, cores_, max_nbytes(megabytes)) {
    for (const std::int64_t size : megabytes) {
      for (const CommOp op : {CommOp::AllGather, CommOp::ReduceScatter}) {
        for (const CommMemory memory : {CommMemory::Allocated, CommMemory::Plain}) {
          series_.push_back({&ranks_, task_of(op, memory, size)});
          series_.back().task.has_floor = true;
          series_.push_back({&twice_as_many_, task_of(op, memory, size)});
        }
        series_.push_back({&on_gloo_, task_of(op, CommMemory::Allocated, size)});
      }
      series_.push_back(
          {&on_gloo_, task_of(CommOp::LibraryAllGather, CommMemory::Allocated, size)});
      for (const CommOp op : {CommOp::AllReduce, CommOp::Broadcast}) {
        series_.push_back({&ranks_, task_of(op, CommMemory::Allocated, size)});
      }
    }
    series_.push_back({&ranks_, {.op = CommOp::Barrier, .repeats = kMostRepeats}});
  }

  Report run(int rounds) {
    Progress progress("bench comm", static_cast<std::uint64_t>(rounds + 1) * series_.size(),
                      ProgressUnit::Turns);
    std::uint64_t done = 0;
    for (int round = 0; round <= rounds; ++round) {
      for (Series& series : series_) {
        series.take_turn(round > 0);
        progress.update(++done);
      }
    }
    Report report = new_report("comm");
    for (const Series& series : series_) {
      add_figures(report, series);
    }
    return report;
  }

 private:
  static std::vector<int> cores_for(int num_ranks) {
    std::vector<int> cores = usable_processors();
    check<IoError>(!cores.empty(),
                   "bench comm: the system does not say which processors there are");
    cores.resize(std::min(cores.size(), static_cast<std::size_t>(num_ranks)));
    return cores;
  }

  static std::int64_t max_nbytes(const std::vector<std::int64_t>& megabytes) {
    return std::ranges::max(megabytes) * kMiB;
  }

  // The bound, where one is demanded.
  std::optional<double> demand(const CommTask& task, double bound) const {
    const bool is_demanded =
        ranks_.size() == 2 && cores_.size() == 2 &&
        std::ranges::find(kDemandedMegabytes, task.nbytes / kMiB) != std::end(kDemandedMegabytes);
    return is_demanded ? std::optional(bound) : std::nullopt;
  }

  // What `ranks` do of that op with the memory and the size of a task.
  const Series& series_of(const CommRanks& ranks, CommOp op, const CommTask& like) const {
    return *std::ranges::find_if(series_, [&](const Series& series) {
      const CommTask& task = series.task;
      return series.ranks == &ranks && task.op == op && task.memory == like.memory &&
             task.nbytes == like.nbytes;
    });
  }

  void add_figures(Report& report, const Series& series) const {
    if (series.ranks == &twice_as_many_) {
      const CommTask& task = series.task;
      report.figures.push_back({fmt::format("{}.{}_over_{}_ranks", figure_name(task),
                                            twice_as_many_.size(), ranks_.size()),
                                rate_ratio(series, series_of(ranks_, task.op, task)), "share",
                                demand(task, kLeastOfTwiceAsMany)});
    } else if (series.ranks == &on_gloo_) {
      add_figures_of_gloo(report, series);
    } else {
      add_figures_of_memory(report, series);
    }
  }

  void add_figures_of_memory(Report& report, const Series& series) const {
    const CommTask& task = series.task;
    const std::string name = figure_name(task);
    if (task.op == CommOp::Barrier) {
      report.figures.push_back({name, series.op.median_undisturbed() / kBarriers * 1e6, "us"});
      return;
    }
    report.figures.push_back({name, rate(series) * 1e-9, "GB/s"});
    if (task.has_floor) {
      report.figures.push_back(
          {name + ".of_floor", series.floor.median_undisturbed() / series.op.median_undisturbed(),
           "share",
           demand(task, task.memory == CommMemory::Allocated ? kLeastAllocated : kLeastPlain)});
    }
  }

  void add_figures_of_gloo(Report& report, const Series& series) const {
    const CommTask& task = series.task;
    const std::string name = figure_name(task);
    report.figures.push_back({"gloo." + name, rate(series) * 1e-9, "GB/s"});
    if (task.op == CommOp::LibraryAllGather) {
      return;
    }
    report.figures.push_back({name + ".over_gloo",
                              rate(series_of(ranks_, task.op, task)) / rate(series), "times",
                              demand(task, kLeastOverGloo)});
    if (task.op == CommOp::ReduceScatter) {
      report.figures.push_back(
          {"gloo." + name + ".of_library_all_gather",
           rate(series) / rate(series_of(on_gloo_, CommOp::LibraryAllGather, task)), "share",
           demand(task, kLeastOfLibrary)});
    }
  }

  std::vector<int> cores_;
  CommRanks ranks_;
  CommRanks twice_as_many_;
  CommRanks on_gloo_;
  std::vector<Series> series_;
};

}  // namespace

Report bench_comm(int num_ranks, const std::vector<std::int64_t>& megabytes, int rounds) {
  return CommBench(num_ranks, megabytes).run(rounds);
}

}  // namespace fsdptrain::tools
