#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/clock.h"
#include "comm/operation.h"
#include "comm/work.h"
#include "runtime/base/device.h"

namespace fsdptrain::comm {

// The ranks of a group as ranks of the world, and what this one is among them.
struct Members {
  std::vector<int> ranks;
  int rank = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  Member member() const { return {rank, size()}; }
};

// An operation of a group, checked on this rank, and what the other ranks compare of it.
struct Call {
  std::shared_ptr<const Members> members;
  Operation operation;
  Frame frame;
};

// What carries out the operations of one rank in the one order in which it issues them, over all of
// its groups: on the CPU a Channel, on a CUDA device NCCL (comm/nccl/connect.h). One thread uses
// it, except where it says otherwise.
class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  // This rank in the world.
  virtual int rank() const = 0;
  // Where the tensors of all operations are.
  virtual Device device() const = 0;

  // Throws what is wrong with the world, or with the calling thread.
  virtual void check_usable() = 0;
  // Carries them out together. The first call of a group is its Op::CreateGroup, alone.
  virtual Work issue(std::vector<Call> calls, Nanoseconds timeout) = 0;
  // Blocks the host until all who take part in these calls are here and have compared what each of
  // them is about to do: MismatchError. Nothing is moved.
  virtual void meet(std::vector<Call> calls, Nanoseconds timeout) = 0;
  // Blocks the host until all that was issued has ended.
  virtual void finish() = 0;
  // Memory that operations of the group with this hash in its frames move without copying it first.
  // A symmetric one is asked for by all members, in one order and of one size.
  virtual std::shared_ptr<Storage> allocate(std::uint64_t group_hash, std::size_t nbytes,
                                            bool is_symmetric) = 0;
  // Ends the world. From any thread.
  virtual void abort(std::string_view reason) const noexcept = 0;
};

}  // namespace fsdptrain::comm
