#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collective/channel.h"
#include "comm/flight/ring.h"
#include "comm/link/links.h"
#include "comm/process_group.h"

namespace fsdptrain::comm {

// Whether FSDPTRAIN_DEBUG asks for the checking mode: "detail", else it is unset or empty.
// ConfigError for another value.
bool checks_from_environment();

// All ranks of a job, as one of them sees them: the group of all for training, a control group that
// shares nothing with it, and further groups. Belongs to one thread, which issues all operations.
// Ends with an error on every rank as soon as one fails.
class World {
 public:
  struct Options {
    // How long a collective waits for the other ranks, if its group says nothing else.
    Nanoseconds timeout = std::chrono::minutes(10);
    // The checking mode: the place of each call in errors, and a barrier before it.
    bool checks = false;
    // For tests, as Channel has it.
    std::function<void()> delay = {};
  };

  // Blocks until all ranks are here. `flight` is the memory of the launcher that reads it; without
  // it the world makes some.
  World(Links links, Options options, std::optional<FlightMemory> flight = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() = default;

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

  // All ranks.
  ProcessGroup& group() { return *group_; }
  // All ranks, for small messages of the training program itself: counts, hashes, error texts.
  ProcessGroup& control() { return *control_; }

  // A group of some ranks, by those ranks, in the same order everywhere; it lives no longer than
  // the world. ConfigError for ranks that are not of the world, twice there, or without this one;
  // MismatchError if the members do not agree on name and ranks.
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks, std::string name);
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks, std::string name,
                                          Nanoseconds timeout);

  // What this rank noted of its operations.
  const FlightRing& flight_ring() const { return ring_; }
  // How long this rank has waited for each rank of the world, in training's collectives.
  std::span<const Nanoseconds> waits() const { return channel_.waits(); }

  // The texts of all ranks, in their order, by the control group. Collective; for small ones.
  std::vector<std::string> exchange(std::string_view text);

  // Makes all ranks end with "rank R failed: reason". From any thread.
  void fail(std::string_view reason) noexcept;

 private:
  Channel::Options channel_options();
  std::unique_ptr<ProcessGroup> make_group(Carrier& carrier, Members members, std::string name,
                                           Nanoseconds timeout, bool checks);

  Options options_;
  FlightRing ring_;
  // Groups made so far, by name and ranks.
  std::map<std::uint64_t, std::uint64_t> num_made_;
  Channel channel_;
  Channel control_channel_;
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<ProcessGroup> control_;
};

}  // namespace fsdptrain::comm
