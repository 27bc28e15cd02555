#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakecuda/clock.h"

namespace fsdptrain::fakecuda {

struct Part;

// A part of an operation that several streams carry out together, such as a collective. Each stream
// joins with an operation of its own (OpSpec::parts). A stream that reaches that operation arrives
// and stays there. When all participants have arrived, `run` is called once, after the accesses of
// every part were checked, each against what its own stream waited for. From then on the streams
// go on, each one ordered after what all participants had done before they arrived.
//
// The hang report names, of each rendezvous that a stream stands at, who has not arrived.
//
// Shared by those who join and by whoever wants to cancel it; no thread of its own, no lock: used
// by host threads of which one runs at a time (HostSchedule), or inside of cuda_call (call.h).
class Rendezvous {
 public:
  struct Options {
    // "ncclAllGather #5 of communicator 0"
    std::string name = {};
    // One name each, "rank 0"; their number is how many must arrive.
    std::vector<std::string> participants = {};
    // Called once; may touch what the parts of all participants name. May be empty.
    std::function<void()> run = {};
    // In virtual time, of which link (testing::Place).
    std::chrono::nanoseconds duration{0};
    int lane = 0;
  };

  explicit Rendezvous(Options options)
      : options_(std::move(options)),
        arrived_(options_.participants.size(), false),
        parts_(options_.participants.size(), nullptr),
        ops_(options_.participants.size(), 0) {}

  const std::string& name() const { return options_.name; }
  std::size_t num_participants() const { return options_.participants.size(); }
  bool arrived(std::size_t participant) const { return arrived_.at(participant); }
  // The names of those who have not arrived.
  std::vector<std::string> missing() const;
  // Ran, or was cancelled.
  bool done() const { return done_; }
  bool cancelled() const { return cancelled_; }

  // Ends it without running it: participants that have arrived go on, later ones do not stop.
  // Nothing happens if it is done. What that means to the caller of the collective is his business.
  void cancel();

 private:
  friend class Machine;

  Options options_;
  std::vector<bool> arrived_;
  // What those who have arrived do here, owned by their streams' queues, and their operations.
  std::vector<const Part*> parts_;
  std::vector<std::uint32_t> ops_;
  // What everybody is ordered after once it is done.
  Clock clock_;
  bool done_ = false;
  bool cancelled_ = false;
};

}  // namespace fsdptrain::fakecuda
