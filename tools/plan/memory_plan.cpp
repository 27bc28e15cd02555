#include "tools/plan/memory_plan.h"

#include <algorithm>
#include <utility>

#include "checkpoint/save/saver.h"
#include "comm/meta/meta_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/processors.h"
#include "runtime/base/rank_context.h"
#include "tools/plan/plan_facts.h"
#include "tools/plan/rehearsal.h"
#include "tools/run/run_checkpoints.h"
#include "tools/train/data_parallel.h"
#include "tools/train/rank_mesh.h"

namespace fsdptrain::tools {
namespace {

// From the second on they are alike.
constexpr int kSteps = 3;

int threads_of(const RunConfig& run, int world) {
  return run.threads > 0 ? static_cast<int>(run.threads) : std::max(1, num_processors() / world);
}

// With what rounding adds to it.
std::int64_t allocated_nbytes(const Tensor& bytes) {
  return static_cast<std::int64_t>(size_class(static_cast<std::size_t>(bytes.numel())));
}

// The rank under way on meta.
class Rehearsal {
 public:
  Rehearsal(const Config& config, comm::MetaRanks& ranks, Allocator& allocator)
      : ranks_(ranks),
        allocator_(allocator),
        num_micro_batches_(num_micro_batches_of_rank(config.train, ranks.size(), "plan")),
        // With sums in one tree, what is held depends on how many there are.
        num_run_(config.shard.accumulate == "exact" ? num_micro_batches_
                                                    : std::min(num_micro_batches_, kAlike)),
        mesh_(config.mesh, ranks.group(),
              [&ranks](std::vector<int> members, std::string name) {
                return ranks.new_group(std::move(members), std::move(name));
              }),
        rank_(config, mesh_.shard(), mesh_.replicas()),
        watch_(rank_.model(), rank_.sharded(), allocator) {
    rank_.begin_average();
    if (config.run.device != "cpu" || copies_to_save(config.checkpoint)) {
      staging_nbytes_ = checkpoint::staging_nbytes_of({.model = &rank_.sharded(),
                                                       .replicas = mesh_.replicas(),
                                                       .optimizer = &rank_.optimizer(),
                                                       .average = rank_.average()});
    }
    if (config.run.device == "cpu" && staging_nbytes_ > 0) {
      staging_ =
          Tensor::empty({staging_nbytes_}, DType::UInt8, Device::meta(), MemoryCategory::Data);
    }
  }

  TrainingRank& rank() { return rank_; }

  MemoryPlan run() {
    MemoryPlan plan;
    plan.num_micro_batches = num_micro_batches_;
    for (int step = 0; step < kSteps; ++step) {
      run_step(static_cast<std::uint64_t>(step));
      plan.phases = watch_.take();
      note(plan, plan.phases);
    }
    plan.traffic = traffic_of(step_traffic());
    const MemoryCounters held = allocator_.counters();
    // A validation is a forward of no more samples, of which nothing is kept.
    watch_.begin("samples");
    rehearse_samples(rank_);
    watch_.begin("writing weights");
    rehearse_gathering(rank_);
    note(plan, watch_.take());
    plan.staging = staging_nbytes_;
    plan.items = items_of(rank_, peak_, held,
                          staging_.defined() ? allocated_nbytes(staging_) : std::int64_t{0});
    const MemoryCounters end = allocator_.counters();
    plan.memory = end;
    plan.memory.peak = peaks_.peak;
    plan.memory.peak_total = peaks_.peak_total;
    return plan;
  }

 private:
  static constexpr std::int64_t kAlike = 2;

  void run_step(std::uint64_t number) {
    ranks_.reset_traffic();
    std::int64_t begun = 0;
    rehearse_step(rank_, ranks_.group(), num_run_, number, [&](std::string_view what) {
      if (what == kMicroBatchBegins && ++begun == 2) {
        first_ = ranks_.traffic();
      }
      watch_.begin(std::string(what));
    });
  }

  // Of all micro-batches: those that were not run are as the first.
  comm::TrafficCounters step_traffic() const {
    comm::TrafficCounters all = ranks_.traffic();
    for (std::int64_t i = num_run_; i < num_micro_batches_; ++i) {
      for (const auto& [use, traffic] : first_.by_use) {
        all.by_use[use] += traffic;
      }
    }
    return all;
  }

  void note(MemoryPlan& plan, const std::vector<StepPhase>& phases) {
    for (const StepPhase& phase : phases) {
      for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
        peaks_.peak[category] = std::max(peaks_.peak[category], phase.memory.peak[category]);
      }
      // Of steps that are alike the first.
      if (phase.memory.peak_total > peaks_.peak_total) {
        peaks_.peak_total = phase.memory.peak_total;
        peak_ = phase.memory;
        plan.peak_phase = phase.name;
      }
    }
  }

  comm::MetaRanks& ranks_;
  Allocator& allocator_;
  std::int64_t num_micro_batches_;
  std::int64_t num_run_;
  RankMesh mesh_;
  TrainingRank rank_;
  PhaseWatch watch_;
  std::int64_t staging_nbytes_ = 0;
  // As long as the run.
  Tensor staging_;
  // When the second micro-batch of the step began.
  comm::TrafficCounters first_;
  // The largest of all phases, and those of the phase with the peak.
  MemoryCounters peaks_;
  MemoryCounters peak_;
};

}  // namespace

std::int64_t MemoryPlan::bytes_received() const {
  std::int64_t sum = 0;
  for (const PlannedTraffic& each : traffic) {
    sum += each.bytes_received;
  }
  return sum;
}

MemoryPlan plan_memory(const Config& config, int world, int rank, std::optional<int> threads) {
  RankContext context({.threads = threads.value_or(threads_of(config.run, world))});
  const ContextGuard guard(context);
  comm::MetaRanks ranks(rank, world);
  Rehearsal rehearsal(config, ranks, context.allocator(Device::meta()));
  MemoryPlan plan = rehearsal.run();
  plan.world = world;
  plan.rank = rank;
  plan.threads = context.pool().threads();
  plan.isa = context.isa();
  shard::ShardedModel& sharded = rehearsal.rank().sharded();
  models::Decoder& model = rehearsal.rank().model();
  plan.num_parameters = sharded.num_parameters();
  plan.slots = slots_of(sharded);
  plan.padding = padding_of(sharded);
  plan.padding_warning = padding_warning(sharded, model.blocks(), model.adjacent_parameters());
  plan.peer_pages = config.run.device == "cpu" ? peer_pages_of(sharded) : 0;
  return plan;
}

}  // namespace fsdptrain::tools
