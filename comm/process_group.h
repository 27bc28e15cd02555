#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/carrier.h"
#include "comm/link/link.h"
#include "comm/tag_names.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {

// A fixed set of ranks that run the same collectives in the same order. Made by World, which it
// does not outlive; used by the one thread that issues operations.
//
// On the CPU a call posts an operation and Work::wait() carries it out; with more than
// Link::kMaxOpen that are open, and in checking mode, a call waits for those before it. Sums run
// over the binary tree of the ranks' index in the group that splits at the largest power of two
// below their number, in float32 (float64 for float64), and are rounded once.
//
// On CUDA a call launches the operation behind what the current stream has now, and Work::wait()
// puts what follows on the then current stream behind it. Sums are those of NCCL.
//
// The tensors of a call are on the group's device and contiguous; nobody touches them before the
// wait.
//
// Errors, beside those of check_operation(): MismatchError where ranks do not call the same,
// PeerError where another rank failed or left, TimeoutError after `timeout` of waiting. After each
// of them the World of all ranks has failed.
class ProcessGroup {
 public:
  struct Options {
    std::string name;
    Nanoseconds timeout{};
    // Frames carry the place of the call, and before each call the ranks that take part in it meet
    // on the host and compare what they are about to do.
    bool checks = false;
    // How many of this name and these ranks there were before.
    std::uint64_t generation = 0;
    // For errors; outlives the group. Null: tags are numbers.
    const TagNames* names = nullptr;
  };

  // By World only: `members` have agreed on name and ranks.
  ProcessGroup(Carrier& carrier, Members members, Options options);
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  ~ProcessGroup() = default;

  // This rank's index in the group.
  int rank() const { return members_->rank; }
  int size() const { return members_->size(); }
  // The members as ranks of the world.
  const std::vector<int>& ranks() const { return members_->ranks; }
  const std::string& name() const { return options_.name; }

  Work issue(const Operation& operation, SourceLocation where = SourceLocation::current());
  // Several operations as one: they are carried out together, so that sends and receives in any
  // order do not wait for each other. At most Link::kMaxOpen.
  Work batch(std::vector<Operation> operations, SourceLocation where = SourceLocation::current());

  // Blocks until all ranks are here, for `timeout` at most; then the TimeoutError names all who are
  // not, on every rank that is.
  void monitored_barrier(Nanoseconds timeout, SourceLocation where = SourceLocation::current());

  // Where the tensors of all operations are.
  Device device() const { return carrier_.device(); }

  // Not initialised, on the group's device, in memory that the backend reads without copying first.
  // OutOfMemoryError of this call alone: the world goes on.
  Tensor allocate(const Shape& shape, DType dtype) const;
  // The same at equal places on all ranks, where the backend makes use of that: all ranks of the
  // group ask for as many bytes, and drop what they got, in the same order. On CUDA all of them
  // must get it: an OutOfMemoryError ends the world.
  Tensor allocate_symmetric(const Shape& shape, DType dtype) const;

  // Ends all operations of all ranks of the world with "rank R failed: reason". From any thread.
  void abort(std::string_view reason) const noexcept;

 private:
  Work issue_all(std::vector<Operation> operations, SourceLocation where);
  // As this group can issue them, in the order in which both sides of a transfer number them.
  std::vector<Operation> checked(std::vector<Operation> operations) const;
  // In the checking mode.
  void compare_first(const std::vector<Operation>& operations, SourceLocation where);
  Call make_call(Operation operation, SourceLocation where);
  Tensor allocate(const Shape& shape, DType dtype, bool is_symmetric) const;
  // What errors say of it beside the frame's own fields.
  std::string note_of(const Operation& operation, SourceLocation where) const;

  Carrier& carrier_;
  std::shared_ptr<const Members> members_;
  Options options_;
  std::uint64_t hash_;
  std::uint64_t sequence_ = 0;
};

// Groups of a run are told apart by it.
std::uint64_t group_hash(const std::string& name, const std::vector<int>& ranks,
                         std::uint64_t generation);

}  // namespace fsdptrain::comm
