#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/carrier.h"
#include "comm/meta/traffic.h"

namespace fsdptrain::comm {

// Carries out the operations of a rank whose partners do not exist: it counts them, moves nothing,
// and there is nothing to wait for. Memory is counted as ranks with partners count theirs; what has
// bytes begins as zeros.
class PhantomCarrier final : public Carrier {
 public:
  PhantomCarrier(int rank, Device device) : rank_(rank), device_(device) {}

  const TrafficCounters& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

  int rank() const override { return rank_; }
  Device device() const override { return device_; }
  void check_usable() override;
  Work issue(std::vector<Call> calls, Nanoseconds timeout) override;
  void meet(std::vector<Call> /*calls*/, Nanoseconds /*timeout*/) override {}
  void finish() override { check_usable(); }
  std::shared_ptr<Storage> allocate(std::uint64_t group_hash, std::size_t nbytes,
                                    bool is_symmetric) override;
  void abort(std::string_view reason) const noexcept override;

 private:
  class Done;

  int rank_;
  Device device_;
  TrafficCounters traffic_;
  // Of a Work that was dropped without a wait; an error of every later call.
  std::optional<std::string> dropped_;
  mutable std::mutex mutex_;
  // Guarded by it.
  mutable std::optional<std::string> aborted_;
};

}  // namespace fsdptrain::comm
