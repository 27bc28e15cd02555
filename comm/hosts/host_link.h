#pragma once

#include <memory>
#include <vector>

#include "comm/link/link.h"

namespace fsdptrain::comm {

// The link of a rank that shares its host with some ranks of the world: it reaches those through
// shared memory and the others over the network. Groups over several hosts sum in the order of all
// others, because who moves the bytes of a pair does not matter to it.
//
// Every part of a sum crosses the network for every rank of another host. To add inside the host
// first would send each byte once per host, and keep the sum, where each host has the same 2^k
// consecutive ranks of the group: its ranks are then one subtree of the summation. It takes an
// exchange in two steps (ranks of a host, then ranks of equal index on all hosts), whose partial
// sums stay in the accumulator's type.
class HostLink final : public Link {
 public:
  // `local` numbers the ranks of this host in the order of the world and wakes also for changes of
  // `remote`; `hosts` has the host of every rank of the world.
  HostLink(std::unique_ptr<Link> local, std::unique_ptr<Link> remote, std::vector<int> hosts);

  int rank() const override { return remote_->rank(); }
  int size() const override { return remote_->size(); }

  void post(const Meeting& meeting, const Frame& frame) override;
  std::optional<Frame> frame(const Meeting& meeting) override;
  void offer(std::span<const Meeting> readers, int phase,
             std::span<const std::byte> bytes) override;
  bool advance(std::span<const Meeting> meetings) override;
  std::span<const std::byte> peek(const Meeting& meeting, int phase, std::size_t offset,
                                  std::size_t limit) override;
  void consume(const Meeting& meeting, int phase, std::size_t offset) override;
  void finish(const Meeting& meeting) override;
  bool finished(const Meeting& meeting) override;
  std::uint32_t changes() const override;
  void rest(std::uint32_t changes, Nanoseconds limit) override;
  Presence presence(int peer) override;
  void report_failure(std::string_view text) noexcept override;
  void check_failure() override;
  std::shared_ptr<Storage> allocate(std::size_t nbytes) override;
  void set_position(const Position& position) override;
  Position position(int rank) override;

 private:
  // Who reaches a rank, and as what.
  struct Way {
    Link* link = nullptr;
    int rank = 0;
  };

  const Way& way(int rank) const { return ways_[static_cast<std::size_t>(rank)]; }
  Meeting there(const Meeting& meeting) const { return {way(meeting.peer).rank, meeting.sequence}; }

  std::unique_ptr<Link> local_;
  std::unique_ptr<Link> remote_;
  std::vector<Way> ways_;
};

}  // namespace fsdptrain::comm
