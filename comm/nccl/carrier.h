#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "comm/nccl/connect.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/in_flight.h"
#include "comm/nccl/lanes.h"
#include "comm/nccl/memory.h"

namespace fsdptrain::comm::nccl {

// Launches operations on streams of its own, in the order in which they are issued.
//
// After an error the communicators are aborted, the other ranks were told, and every later call
// throws the same again.
class NcclCarrier final : public Carrier {
 public:
  explicit NcclCarrier(Options options);
  NcclCarrier(const NcclCarrier&) = delete;
  NcclCarrier& operator=(const NcclCarrier&) = delete;
  ~NcclCarrier() override;

  int rank() const override { return options_.channel->rank(); }
  Device device() const override { return options_.device; }
  void check_usable() override;
  Work issue(std::vector<Call> calls, Nanoseconds timeout) override;
  void meet(std::vector<Call> calls, Nanoseconds timeout) override;
  void finish() override;
  std::shared_ptr<Storage> allocate(std::uint64_t group_hash, std::size_t nbytes,
                                    bool is_symmetric) override;
  void abort(std::string_view reason) const noexcept override { options_.tell_all(reason); }

 private:
  class Issued;

  void create_group(const Call& call, Nanoseconds timeout);
  void wait(Batch& batch);
  // A Work was dropped without a wait.
  void drop(const Batch& batch) noexcept;
  // Remembers the exception under way, aborts, tells the others, rethrows.
  [[noreturn]] void fail_all();
  void report() const noexcept;
  void report_open() const noexcept;
  void wait_for_streams() const noexcept;

  Options options_;
  DeviceContext& device_;
  Lanes lanes_;
  Groups groups_;
  InFlight in_flight_;
  std::shared_ptr<RegisteredMemory> memory_;
  // Works that were not waited for.
  int num_open_ = 0;
  // What broke the carrier; null while it works.
  std::exception_ptr failure_;
};

}  // namespace fsdptrain::comm::nccl
