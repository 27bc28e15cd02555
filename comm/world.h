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
#include "comm/nccl/connect.h"
#include "comm/order_log.h"
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
    // Where the groups of training move bytes: on the CPU over the links; on CUDA by NCCL, and the
    // links carry what ranks say to each other.
    Device device = Device::cpu();
    nccl::Streams streams = nccl::Streams::Separate;
    // How long a collective waits for the other ranks, if its group says nothing else.
    Nanoseconds timeout = std::chrono::minutes(10);
    // The checking mode: the place of each call in errors, and a barrier before it.
    bool checks = false;
    // For tests, as Channel has it.
    std::function<void()> delay = {};
  };

  // Blocks until all ranks are here. DeviceError as make_cuda_api(). `flight` is the memory of the
  // launcher that reads it; without it the world makes some.
  World(Links links, Options options, std::optional<FlightMemory> flight = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() = default;

  int rank() const { return channel_.rank(); }
  int size() const { return group_->size(); }
  // Of the groups of training.
  Device device() const { return options_.device; }

  // All ranks.
  ProcessGroup& group() { return *group_; }
  // All ranks, for small messages of the training program itself: counts, hashes, error texts.
  // Always on the CPU.
  ProcessGroup& control() { return *control_; }

  // A group of some ranks, by those ranks, in the same order everywhere; it lives no longer than
  // the world. ConfigError for ranks that are not of the world, twice there, or without this one;
  // MismatchError if the members do not agree on name and ranks.
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks, std::string name);
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks, std::string name,
                                          Nanoseconds timeout);

  // Blocks the host until all operations of training that this rank issued have ended; on CUDA it
  // is what notices that they do not: TimeoutError with what every rank does, PeerError.
  void finish();

  // Collective, by the control group, at the same point of the program on all ranks: MismatchError
  // naming the first rank that has issued its collectives in another order, and where. Waits for
  // other hosts, for no device. On the CPU it does nothing: each operation is compared by itself.
  void check_order();

  // What errors, and readers of the flight ring, call a group of parameters in tags: its layer. By
  // the issuing thread, alike on all ranks.
  void name_group(std::uint32_t root, std::uint32_t group, const std::string& name);

  // What this rank noted of its operations.
  const FlightRing& flight_ring() const { return ring_; }
  // How long this rank's host has waited for each rank of the world, in training's collectives. On
  // CUDA the device waits, and it is only what making groups took.
  std::span<const Nanoseconds> waits() const { return channel_.waits(); }

  // The texts of all ranks, in their order, by the control group. Collective; for small ones.
  std::vector<std::string> exchange(std::string_view text);

  // Makes all ranks end with "rank R failed: reason". From any thread.
  void fail(std::string_view reason) noexcept;

 private:
  Channel::Options channel_options(FlightRing* ring);
  // What carries out training's operations.
  Carrier& carrier();
  std::unique_ptr<ProcessGroup> make_group(Carrier& carrier, Members members, std::string name,
                                           Nanoseconds timeout, bool checks);

  Options options_;
  TagNames names_;
  FlightRing ring_;
  OrderLog order_;
  // Groups made so far, by name and ranks.
  std::map<std::uint64_t, std::uint64_t> num_made_;
  Channel channel_;
  Channel control_channel_;
  // Null on the CPU.
  std::unique_ptr<Carrier> device_carrier_;
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<ProcessGroup> control_;
};

}  // namespace fsdptrain::comm
