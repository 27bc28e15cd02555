#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <vector>

#include "comm/nccl/communicator.h"
#include "comm/nccl/connect.h"
#include "comm/nccl/host_wait.h"
#include "runtime/base/device_context.h"
#include "runtime/base/stream.h"

namespace fsdptrain::comm::nccl {

// Launches operations on streams of its own, in the order in which they are issued.
//
// [Note: streams of an operation] Its stream waits for what the current stream had at the call;
// Work::wait() makes the then current stream wait for it. Tensors are kept by the operation until
// then, and their storages know that its stream uses them: so what is freed after the wait, on any
// stream, is given to nobody who would not wait for the operation (runtime/base/allocator.h).
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
  void meet(Call call, Nanoseconds timeout) override;
  void finish() override;
  std::shared_ptr<Storage> allocate(std::uint64_t group_hash, std::size_t nbytes,
                                    bool is_symmetric) override;
  void abort(std::string_view reason) const noexcept override { options_.tell_all(reason); }

 private:
  struct Batch;
  using Communicators = std::vector<std::shared_ptr<Communicator>>;

  void create_group(const Call& call, Nanoseconds timeout);
  // Which of its streams and communicators an operation runs on.
  std::size_t lane_of(Op op) const;
  void begin(Batch& batch);
  void launch(Batch& batch);
  void wait(Batch& batch);
  // A Work was dropped without a wait.
  void drop(Batch& batch) noexcept;
  void wait_for_streams() const noexcept;
  std::uint64_t begin_record(const Call& call, Nanoseconds timeout);
  // Notes what has passed since the last look; TimeoutError for what should have.
  void note_passed();
  void complete_first();
  // Blocks the host until the first one in flight has ended.
  void finish_first();
  // A member of its group that has left or died; -1 for none.
  int departed_member(const Batch& batch);
  // Throws what NCCL says of any communicator.
  void check_communicators();
  [[noreturn]] void fail_timeout(const Batch& batch);
  void abort_all() noexcept;
  // Remembers the exception under way, aborts, tells the others, rethrows.
  [[noreturn]] void fail_all();
  void report() const noexcept;
  void show(Progress progress, const Frame& frame);

  Options options_;
  DeviceContext& device_;
  HostWait wait_;
  std::vector<Stream> streams_;
  // One float32 that is zero, for barriers.
  Tensor scratch_;
  // Of operations with each rank of the world.
  std::vector<std::uint64_t> pair_sequences_;
  // By the hash of their group.
  std::map<std::uint64_t, Communicators> groups_;
  // Launched, and not known to have ended.
  std::deque<std::shared_ptr<Batch>> in_flight_;
  // Works that were not waited for.
  int num_open_ = 0;
  // What broke the carrier; null while it works.
  std::exception_ptr failure_;
};

}  // namespace fsdptrain::comm::nccl
