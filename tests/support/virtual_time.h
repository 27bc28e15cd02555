#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

// How long a schedule of streams takes when every operation has a given duration: no clock, no
// device, only arithmetic.
namespace fsdptrain::testing {

// What an operation keeps busy while it runs. A device has one of each, and one link per lane, or
// one for all lanes.
enum class Resource { None, Compute, Copy, Link };

// Where an operation runs. A collective has one place on each device.
struct Place {
  int device = 0;
  int stream = 0;
  Resource resource = Resource::Compute;
  // Which link, where they are separate; others ignore it.
  int lane = 0;
};

struct VirtualOp {
  std::string name = {};
  std::vector<Place> places = {};
  std::chrono::nanoseconds duration{0};
  // Earlier operations of the list that end before this one begins, its streams' own aside.
  std::vector<std::size_t> dependencies = {};
};

enum class LinkModel { Shared, Separate };

struct Span {
  std::chrono::nanoseconds begin{0};
  std::chrono::nanoseconds end{0};
};

struct Schedule {
  // One for each operation.
  std::vector<Span> spans = {};
  std::chrono::nanoseconds makespan{0};
};

namespace detail {

using Nanoseconds = std::chrono::nanoseconds;
using StreamKey = std::pair<int, int>;
using ResourceKey = std::tuple<int, Resource, int>;

// What is under way, and when all it needs is free again.
class Simulation {
 public:
  Simulation(const std::vector<VirtualOp>& ops, LinkModel links)
      : ops_(ops), links_(links), spans_(ops.size()), done_(ops.size(), false) {
    for (std::size_t op = 0; op < ops.size(); ++op) {
      for (const Place& place : ops[op].places) {
        queues_[{place.device, place.stream}].push_back(op);
      }
    }
  }

  Schedule run() {
    Schedule schedule;
    for (std::size_t left = ops_.size(); left > 0; --left) {
      const std::size_t op = next();
      start(op);
      schedule.makespan = std::max(schedule.makespan, spans_[op].end);
    }
    schedule.spans = std::move(spans_);
    return schedule;
  }

 private:
  struct Stream {
    std::size_t next = 0;
    Nanoseconds end{0};
  };

  ResourceKey key_of(const Place& place) const {
    const bool has_lane = place.resource == Resource::Link && links_ == LinkModel::Separate;
    return {place.device, place.resource, has_lane ? place.lane : 0};
  }

  bool may_start(std::size_t op) const {
    const auto is_head = [&](const Place& place) {
      const StreamKey key{place.device, place.stream};
      const auto stream = streams_.find(key);
      return queues_.at(key)[stream == streams_.end() ? 0 : stream->second.next] == op;
    };
    return std::ranges::all_of(ops_[op].places, is_head) &&
           std::ranges::all_of(ops_[op].dependencies,
                               [&](std::size_t other) { return done_.at(other); });
  }

  // When its streams and dependencies are through.
  Nanoseconds ready(std::size_t op) {
    Nanoseconds time{0};
    for (const Place& place : ops_[op].places) {
      time = std::max(time, streams_[{place.device, place.stream}].end);
    }
    for (const std::size_t other : ops_[op].dependencies) {
      time = std::max(time, spans_[other].end);
    }
    return time;
  }

  // And its resources are free.
  Nanoseconds begin(std::size_t op) {
    Nanoseconds time = ready(op);
    for (const Place& place : ops_[op].places) {
      if (place.resource != Resource::None) {
        time = std::max(time, free_[key_of(place)]);
      }
    }
    return time;
  }

  // Whoever can begin first; of several, whoever was ready first; of those, whoever was issued
  // first.
  std::size_t next() {
    std::vector<std::tuple<Nanoseconds, Nanoseconds, std::size_t>> candidates;
    for (const auto& [key, queue] : queues_) {
      const std::size_t head = streams_[key].next;
      if (head < queue.size() && may_start(queue[head])) {
        candidates.emplace_back(begin(queue[head]), ready(queue[head]), queue[head]);
      }
    }
    check(!candidates.empty(), "virtual time: operations wait for each other");
    return std::get<std::size_t>(*std::ranges::min_element(candidates));
  }

  void start(std::size_t op) {
    spans_[op].begin = begin(op);
    spans_[op].end = spans_[op].begin + ops_[op].duration;
    done_[op] = true;
    for (const Place& place : ops_[op].places) {
      free_[key_of(place)] = spans_[op].end;
      Stream& stream = streams_[{place.device, place.stream}];
      ++stream.next;
      stream.end = spans_[op].end;
    }
  }

  const std::vector<VirtualOp>& ops_;
  LinkModel links_;
  std::vector<Span> spans_;
  std::vector<bool> done_;
  std::map<StreamKey, std::vector<std::size_t>> queues_;
  std::map<StreamKey, Stream> streams_;
  std::map<ResourceKey, Nanoseconds> free_;
};

}  // namespace detail

// Operations of one stream run in the order of the list, of one resource one at a time, each as
// early as it can. Error if they wait for each other.
inline Schedule simulate(const std::vector<VirtualOp>& ops, LinkModel links) {
  return detail::Simulation(ops, links).run();
}

// A row for each stream, `width` columns for the whole time: the first letter of the operation that
// runs, '.' where none does. An operation shorter than a column may not be seen.
inline std::string timeline(const std::vector<VirtualOp>& ops, const Schedule& schedule,
                            std::size_t width) {
  std::map<detail::StreamKey, std::string> rows;
  const auto column = [&](std::chrono::nanoseconds time) {
    const auto end = std::max<std::int64_t>(schedule.makespan.count(), 1);
    return static_cast<std::size_t>(time.count()) * width / static_cast<std::size_t>(end);
  };
  for (std::size_t op = 0; op < ops.size(); ++op) {
    for (const Place& place : ops[op].places) {
      std::string& row = rows[{place.device, place.stream}];
      row.resize(width, '.');
      const std::size_t begin = column(schedule.spans[op].begin);
      const std::size_t end = column(schedule.spans[op].end);
      row.replace(begin, end - begin, end - begin, ops[op].name.empty() ? '?' : ops[op].name[0]);
    }
  }
  std::string text;
  for (const auto& [key, row] : rows) {
    text += fmt::format("device {} stream {} |{}|\n", key.first, key.second, row);
  }
  return text;
}

}  // namespace fsdptrain::testing
