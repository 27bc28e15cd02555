#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/carrier.h"
#include "comm/collective/transfer_plan.h"
#include "comm/link/link.h"

namespace fsdptrain::comm {

// One operation under way on this rank. It advances without blocking, so that several can be
// carried out at once; every frame of every peer is compared before its bytes are read.
class Exchange {
 public:
  enum class Purpose {
    Move,
    // All compare their frames, and move nothing.
    Compare,
  };

  // The meetings are those with the peers of the operation, in the order of the group.
  Exchange(Link& link, Call call, std::vector<Meeting> meetings, Purpose purpose);

  // Publishes frames and the first offers.
  void post();
  // StorageError for a tensor whose bytes are gone since the call.
  void check_bytes() const;
  // Does what can be done now; whether anything was. MismatchError naming both sides.
  bool advance();
  bool is_done() const { return is_done_; }

  const Call& call() const { return call_; }
  const Frame& frame() const { return call_.frame; }
  const std::vector<Meeting>& meetings() const { return meetings_; }
  // The world rank whose part is missing now; -1 when none is.
  int waits_for() const { return waits_for_; }
  // All world ranks that this one still needs: to read from them, or to be read by them.
  std::vector<int> unfinished() const;
  bool is_unfinished(int rank) const;
  // All world ranks that have not done their part.
  std::vector<int> missing() const;

 private:
  struct Peer {
    Meeting meeting;
    int index = 0;
    bool is_verified = false;
    bool is_read = false;
    // Bytes of the phase that were read.
    std::size_t position = 0;
  };

  bool verify_frames();
  bool verify(Peer& peer);
  Frame frame_to(const Peer& peer) const;
  void offer_phase();
  bool read_phase();
  bool copy_from(Peer& peer);
  bool combine_parts();
  void copy_own();
  void begin_phase(std::size_t index);
  // What can be read of a peer next.
  std::span<const std::byte> next_bytes(const Peer& peer) const;
  bool is_phase_read() const;
  bool end_phase();
  std::size_t nbytes_of(const Range& range) const;

  Link& link_;
  Call call_;
  std::vector<Meeting> meetings_;
  std::vector<Peer> peers_;
  // What frames say of the elements that go to and come from each peer.
  Phase announced_;
  std::vector<Phase> phases_;
  std::size_t phase_ = 0;
  // What of this rank's own part was combined, in elements.
  std::int64_t combined_ = 0;
  int waits_for_ = -1;
  // Nothing is left to read here; peers may still read.
  bool is_read_ = false;
  bool is_done_ = false;
};

}  // namespace fsdptrain::comm
