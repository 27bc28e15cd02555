#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "comm/collective/channel.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/host_wait.h"

namespace fsdptrain::comm::nccl {

using Communicators = std::vector<std::shared_ptr<Communicator>>;

// The communicators of all groups of a rank, from their making to their end. Everything here is
// done to all of them at once: they share the device, and one that waits holds up the others.
class Groups {
 public:
  // `lanes` communicators for each group: one for all, or one for gathers and one for reductions.
  Groups(Channel& channel, HostWait wait, std::size_t lanes);
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;
  // Of end() and abort(), one was called.
  ~Groups() = default;

  // By all members of the group of an Op::CreateGroup, who agree on its name and ranks first and
  // hear of each other's failures while NCCL waits. After an error all is to be aborted.
  void create(const Call& call, Nanoseconds timeout);
  // By the hash that the frames of its operations have.
  const Communicators& of(std::uint64_t group_hash) const { return groups_.at(group_hash); }
  // Throws what NCCL says of any of them.
  void check() const;

  // Ends them together with the other ranks, for 5 s at most, however many there are; aborts those
  // that have not ended then.
  void end() noexcept;
  // Ends what is under way, on this rank.
  void abort() noexcept;

 private:
  Communicators all() const;
  // Whether all have ended, each without an error.
  bool finalize();

  Channel& channel_;
  HostWait wait_;
  std::size_t lanes_;
  // By the hash of their group.
  std::map<std::uint64_t, Communicators> groups_;
};

}  // namespace fsdptrain::comm::nccl
