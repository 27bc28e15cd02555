#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/gloo/intake.h"
#include "comm/gloo/mesh.h"
#include "comm/gloo/wire.h"
#include "comm/link/link.h"

namespace fsdptrain::comm {

// The link of ranks on several hosts, over TCP. Few bytes travel with their offer. More are sent in
// chunks when their receives are posted, which is once the frames fit: nothing moves for operations
// that do not, and gloo's thread sends what is offered while the rank computes. Two threads per
// peer take its messages and wait for its chunks.
//
// What others do is known from what they say: position() of a rank asks it, waits at most 100 ms,
// and is empty if it has never answered. A rank that has stopped is Here until the operation's
// timeout; Dead is one whose connection ended without a word.
//
// The destructor tells the peers that this rank leaves and waits until they know, one second at
// most: what was sent before would be lost otherwise.
class GlooLink final : public Link {
 public:
  // `notify` is called after every change of changes(), from any thread.
  explicit GlooLink(std::unique_ptr<Mesh> mesh, std::function<void()> notify = {});
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;
  ~GlooLink() override;

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }

  void post(const Meeting& meeting, const Frame& frame) override;
  std::optional<Frame> frame(const Meeting& meeting) override;
  void offer(std::span<const Meeting> readers, int phase,
             std::span<const std::byte> bytes) override;
  bool advance(std::span<const Meeting> /*meetings*/) override { return false; }
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
  static constexpr std::size_t kPhases = 2;
  // A peer posts at most kMaxOpen operations beyond one that this rank has not finished.
  static constexpr std::uint64_t kPlaces = 2 * kMaxOpen;

  // Memory for one chunk on its way in.
  struct Landing {
    std::shared_ptr<Storage> storage;
    std::unique_ptr<Region> region;
  };

  // What a peer offers in one phase.
  struct Incoming {
    bool is_offered = false;
    std::uint64_t nbytes = 0;
    // All of it, where it travels with the offer.
    std::array<std::byte, Message::kBytes> bytes{};
    std::uint64_t num_arrived = 0;

    // By the thread of the link only. Chunks that were read, and those requested after them.
    std::uint64_t num_read = 0;
    std::deque<Landing> requested = {};
  };

  // One operation with a peer, by what each has posted.
  struct Theirs {
    // Sequence + 1.
    std::uint64_t posted = 0;
    Frame frame;
    std::array<Incoming, kPhases> phases;
  };
  struct Mine {
    std::uint64_t posted = 0;
    std::uint64_t finished = 0;
    // What it offers, until the peer has finished; null where the message had it.
    std::array<std::shared_ptr<Region>, kPhases> phases;
  };

  // What ended the world: the rank where it began, and its text.
  struct Failure {
    int rank = 0;
    std::string text;
  };

  struct Peer {
    std::unique_ptr<Wire> wire;
    Intake intake;
    std::array<Theirs, kPlaces> theirs;
    std::array<Mine, kPlaces> mine;
    // Operations by it, and by this rank to it.
    std::uint64_t num_posted = 0;
    std::uint64_t num_posted_to = 0;
    Presence presence = Presence::Here;
    // It knows that this rank leaves.
    bool has_seen_leave = false;
    // What has come of the text that it tells.
    std::string failure;
    Position position;
    std::uint64_t num_answers = 0;
  };

  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  Theirs& theirs(const Meeting& meeting);
  Mine& mine(const Meeting& meeting);
  // What has not been read of the phase, for the thread of the link.
  Incoming& incoming(const Meeting& meeting, int phase);
  std::uint64_t num_chunks(std::uint64_t nbytes) const;
  void send_chunks(const Meeting& meeting, Region& region, std::size_t nbytes) const;
  void request_ahead(const Meeting& meeting, Incoming& incoming);
  Landing take_landing();

  // On the thread of the peer's wire.
  void receive(int rank, const Message& message);
  void dispatch(int rank, const Message& message);
  void answer(int rank);
  void close(int rank);
  // Whether that is an operation under way, and a phase.
  void check_message(int rank, const Message& message);
  void ring();
  void tell_all(const Message& message);
  void tell_failure(const Failure& failure);
  void leave() noexcept;

  std::unique_ptr<Mesh> mesh_;
  std::function<void()> notify_;
  std::size_t chunk_bytes_;
  // By the thread of the link only.
  std::vector<Landing> landings_;

  // Guards what follows, and all of a peer that its wire changes. Nothing is sent under it.
  mutable std::mutex mutex_;
  std::condition_variable bell_;
  std::uint32_t changes_ = 0;
  // The first one.
  std::optional<Failure> failure_;
  Position position_;
  std::uint64_t num_asked_ = 0;
  Nanoseconds last_asked_{};
  // Null for this rank itself.
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace fsdptrain::comm
