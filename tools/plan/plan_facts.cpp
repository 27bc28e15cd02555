#include "tools/plan/plan_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "comm/shm/segment.h"
#include "tools/plan/unit_names.h"

namespace fsdptrain::tools {
namespace {

std::int64_t as_signed(std::size_t nbytes) {
  return static_cast<std::int64_t>(nbytes);
}

// What an average of all that is trained takes.
std::int64_t average_nbytes(TrainingRank& rank) {
  std::int64_t nbytes = 0;
  for (const nn::FlatChunk& chunk : rank.sharded().chunks()) {
    const Tensor& values = chunk.parameters;
    nbytes +=
        as_signed(size_class(static_cast<std::size_t>(values.numel()) * size_of(values.dtype())));
  }
  return rank.average() != nullptr ? nbytes : 0;
}

std::int64_t pool_nbytes(const shard::ShardedModel& model) {
  const auto& plan = model.pool().plan();
  return plan ? as_signed(plan->pool_nbytes()) : 0;
}

std::string_view name_of(comm::Direction direction) {
  switch (direction) {
    case comm::Direction::None:
      return "";
    case comm::Direction::Forward:
      return "forward";
    case comm::Direction::Backward:
      return "backward";
  }
  return "";
}

const shard::FlatBuffer& buffer_of(const shard::ShardedModel& model, const shard::SlotUse& use) {
  return model.units()[use.group]->group().buffers()[use.buffer];
}

std::size_t chunk_nbytes(const shard::FlatBuffer& buffer, shard::SlotKind kind) {
  const shard::BufferKey& key = buffer.layout().key();
  const DType dtype = kind == shard::SlotKind::Parameters ? key.gathered : *key.reduce;
  return static_cast<std::size_t>(buffer.layout().chunk_numel()) * size_of(dtype);
}

// Addresses in the pool that are read of one other rank.
class Pages {
 public:
  void add(std::size_t begin, std::size_t nbytes) {
    if (nbytes > 0) {
      parts_.emplace_back(begin / kPage, (begin + nbytes + kPage - 1) / kPage);
    }
  }
  // Each once.
  std::int64_t nbytes() {
    std::ranges::sort(parts_);
    std::size_t pages = 0;
    std::size_t end = 0;
    for (const auto& [first, last] : parts_) {
      pages += last > end ? last - std::max(first, end) : 0;
      end = std::max(end, last);
    }
    return as_signed(pages * kPage);
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::vector<std::pair<std::size_t, std::size_t>> parts_;
};

}  // namespace

std::vector<PlannedItem> items_of(TrainingRank& rank, const MemoryCounters& peak,
                                  const MemoryCounters& held, std::int64_t staging) {
  std::vector<PlannedItem> items;
  const auto add = [&](const char* name, std::int64_t held_nbytes, std::int64_t at_peak) {
    if (held_nbytes > 0 || at_peak > 0) {
      items.push_back({name, held_nbytes, at_peak});
    }
  };
  using Category = MemoryCategory;
  const std::int64_t average = average_nbytes(rank);
  const std::int64_t pool = pool_nbytes(rank.sharded());
  add("parameters", held.live_of(Category::Parameter), peak.peak_of(Category::Parameter));
  add("gradients", held.live_of(Category::Gradient), peak.peak_of(Category::Gradient));
  add("optimizer states", held.live_of(Category::Optimizer) - average,
      peak.peak_of(Category::Optimizer) - average);
  add("average of weights", average, average);
  add("slots of gathered units", pool, pool);
  add("whole units outside the slots", held.live_of(Category::Communication) - pool,
      peak.peak_of(Category::Communication) - pool);
  add("tokens", held.live_of(Category::Data) - staging, peak.peak_of(Category::Data) - staging);
  add("copy for checkpoints", staging, staging);
  std::int64_t rest = peak.peak_total;
  for (const PlannedItem& item : items) {
    rest -= item.at_peak;
  }
  // Both come and go: what is in use at one time is the whole less all others.
  const std::int64_t workspace =
      std::clamp(rest - peak.peak_of(Category::Activation), std::int64_t{0}, rest);
  add("activations", held.live_of(Category::Activation), rest - workspace);
  add("workspace", held.live_of(Category::Workspace), workspace);
  return items;
}

std::vector<PlannedTraffic> traffic_of(const comm::TrafficCounters& counters) {
  std::map<std::pair<comm::Op, comm::Direction>, comm::Traffic> sums;
  for (const auto& [use, traffic] : counters.by_use) {
    sums[{use.op, use.direction}] += traffic;
  }
  std::vector<PlannedTraffic> all;
  for (const auto& [use, traffic] : sums) {
    all.push_back({std::string(comm::name_of(use.first)), std::string(name_of(use.second)),
                   traffic.calls, traffic.bytes_sent, traffic.bytes_received});
  }
  return all;
}

std::vector<PlannedSlots> slots_of(const shard::ShardedModel& model) {
  const auto& plan = model.pool().plan();
  if (!plan) {
    return {};
  }
  std::vector<PlannedSlots> all;
  for (const shard::SlotClass& slots : plan->classes) {
    std::map<shard::SlotKind, std::set<std::uint32_t>> users;
    for (const auto& [use, places] : plan->slots) {
      if (std::ranges::find(places, slots.slot_nbytes, &shard::Slot::nbytes) != places.end()) {
        users[use.kind].insert(use.group);
      }
    }
    PlannedSlots& planned = all.emplace_back(
        PlannedSlots{as_signed(slots.slot_nbytes), as_signed(slots.num_slots), {}});
    for (const auto& [kind, groups] : users) {
      std::vector<std::string> names;
      for (const std::uint32_t group : groups) {
        names.push_back(model.units()[group]->name());
      }
      planned.users.push_back(
          (kind == shard::SlotKind::Parameters ? "parameters of " : "gradients of ") +
          folded(names));
    }
  }
  return all;
}

std::int64_t peer_pages_of(const shard::ShardedModel& model) {
  const int size = model.units().back()->group().buffers().empty()
                       ? 1
                       : model.units().back()->group().buffers()[0].layout().num_ranks();
  const auto& plan = model.pool().plan();
  if (size == 1 || size > comm::kMaxRanksPerHost || !plan) {
    return 0;
  }
  std::int64_t nbytes = 0;
  for (int peer = 0; peer < size; ++peer) {
    Pages pages;
    for (const auto& [use, places] : plan->slots) {
      const shard::FlatBuffer& buffer = buffer_of(model, use);
      if (peer == buffer.rank()) {
        continue;
      }
      const std::size_t chunk = chunk_nbytes(buffer, use.kind);
      // Of parameters it reads the part that the other has, of gradients its own.
      const int part = use.kind == shard::SlotKind::Parameters ? peer : buffer.rank();
      for (const shard::Slot& slot : places) {
        pages.add(slot.offset + static_cast<std::size_t>(part) * chunk, chunk);
      }
    }
    nbytes += pages.nbytes();
  }
  return nbytes;
}

}  // namespace fsdptrain::tools
