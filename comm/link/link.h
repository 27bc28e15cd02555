#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/clock.h"
#include "comm/link/frame.h"
#include "runtime/tensor/storage.h"

namespace fsdptrain::comm {

// The n-th operation between this rank and another of the world.
struct Meeting {
  int peer = 0;
  std::uint64_t sequence = 0;

  friend bool operator==(const Meeting&, const Meeting&) = default;
};

enum class Presence : std::uint8_t {
  // Or not here yet.
  Here,
  // It has closed its link.
  Left,
  // Its process is gone, without a word.
  Dead,
};

enum class Progress : std::uint8_t { Idle, Posted, Waiting };

// What a rank does now, for the reports of the others.
struct Position {
  Progress progress = Progress::Idle;
  // The operation it is in, or else the last one it finished.
  Frame frame;
  // Who has not arrived there; -1 if nobody is waited for.
  std::int32_t waits_for = -1;
  // Since when, by the monotonic clock.
  std::int64_t since = 0;
};

// How one rank reaches the others of its world: frames that name what both are about to do, and
// bytes that one side offers and the other reads. Nothing here waits for another rank but rest(),
// and position() for a moment. Ranks are those of the world. One thread uses a link, except where
// it says otherwise.
class Link {
 public:
  virtual ~Link() = default;

  // Of all deadlines and times that ranks tell each other.
  virtual const Clock& clock() const { return monotonic_clock(); }
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Operations with one peer that are posted and not finished by it: at most kMaxOpen.
  static constexpr std::uint64_t kMaxOpen = 32;
  // Tells the peer what meets it there. The operation kMaxOpen before is finished.
  virtual void post(const Meeting& meeting, const Frame& frame) = 0;
  // What the peer posted, or nothing yet.
  virtual std::optional<Frame> frame(const Meeting& meeting) = 0;

  // Lets all `readers` read `bytes`, which stay as they are until they have finished.
  virtual void offer(std::span<const Meeting> readers, int phase,
                     std::span<const std::byte> bytes) = 0;
  // Moves on what is offered to these meetings, of one operation, and cannot be read where it lies;
  // whether anything moved. All ranks move their operations on in one order: slots are few.
  virtual bool advance(std::span<const Meeting> meetings) = 0;
  // What is there of the peer's offer from `offset` on, at most `limit` bytes; empty if nothing
  // yet. PeerError for an offer outside the peer's memory.
  virtual std::span<const std::byte> peek(const Meeting& meeting, int phase, std::size_t offset,
                                          std::size_t limit) = 0;
  // The bytes before `offset` were read.
  virtual void consume(const Meeting& meeting, int phase, std::size_t offset) = 0;
  // This rank reads nothing more of that operation; whether the peer does not either.
  virtual void finish(const Meeting& meeting) = 0;
  virtual bool finished(const Meeting& meeting) = 0;

  // Counts what peers changed; rest() returns when it is no longer `changes`, and after `limit` at
  // the latest. PeerError if a rank of the world has failed.
  virtual std::uint32_t changes() const = 0;
  virtual void rest(std::uint32_t changes, Nanoseconds limit) = 0;

  virtual Presence presence(int peer) = 0;
  // Makes the waits of all ranks of the world fail with "rank R failed: text", of which the first
  // line is told; the first report counts. From any thread.
  virtual void report_failure(std::string_view text) noexcept = 0;
  // Throws PeerError if a rank of the world failed.
  virtual void check_failure() = 0;

  // Memory that peers read where it lies. OutOfMemoryError naming what is left.
  virtual std::shared_ptr<Storage> allocate(std::size_t nbytes) = 0;

  virtual void set_position(const Position& position) = 0;
  virtual Position position(int rank) = 0;
};

}  // namespace fsdptrain::comm
