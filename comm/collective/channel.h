#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/carrier.h"
#include "comm/clock.h"
#include "comm/collective/exchange.h"
#include "comm/flight/ring.h"
#include "comm/link/link.h"

namespace fsdptrain::comm {

// The one order in which a rank issues operations on a link, over all groups. They are posted at
// once and carried out, in that order, by whoever waits; so it never depends on timing. One thread
// issues and waits: MisuseError on any other.
//
// After an error the channel is broken: the other ranks were told, and every later call throws the
// same again.
class Channel final : public Carrier {
 public:
  struct Options {
    // Makes the waits of all ranks of the world fail, on every link that joins them; does not
    // throw.
    std::function<void(std::string_view text)> tell_all;
    // Where operations are noted, of the same thread; outlives the channel. Null: nowhere.
    FlightRing* ring = nullptr;
    // For tests: called before every step that others can see.
    std::function<void()> delay = {};
  };

  Channel(std::unique_ptr<Link> link, Options options);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  // Leaves the link. What is posted and not finished is reported to the others as a failure.
  ~Channel() override;

  Link& link() { return *link_; }
  // How long this rank has waited for each rank of the world.
  std::span<const Nanoseconds> waits() const { return waits_; }

  int rank() const override { return link_->rank(); }
  Device device() const override { return Device::cpu(); }
  void check_usable() override;
  Work issue(std::vector<Call> calls, Nanoseconds timeout) override;
  void meet(std::vector<Call> calls, Nanoseconds timeout) override;
  void finish() override;
  // All of it is symmetric: peers see where it lies at each use.
  std::shared_ptr<Storage> allocate(std::uint64_t group_hash, std::size_t nbytes,
                                    bool is_symmetric) override;
  void abort(std::string_view reason) const noexcept override;

 private:
  struct Batch;

  Exchange make_exchange(Call call, Exchange::Purpose purpose);
  Work post(std::vector<Call> calls, Nanoseconds timeout, Exchange::Purpose purpose);
  // Carries out everything up to `batch`.
  void wait(const Batch& batch);
  // A Work was dropped without a wait.
  void drop(const Batch& batch) noexcept;

  void run(Batch& batch);
  // A peer that an operation of a batch still needs, and that is gone.
  struct Departure {
    std::size_t exchange = 0;
    int rank = 0;
    Presence presence = Presence::Here;
  };

  bool advance(Batch& batch);
  std::vector<Departure> departures(const Batch& batch);
  // PeerError for a peer that was gone before the last look, and is needed after it.
  void check_departed(const Batch& batch, std::span<const Departure> departed);
  // Posted operations are few: the oldest are carried out first.
  void make_room(std::size_t num_exchanges);
  [[noreturn]] void fail_timeout(const Batch& batch, const Exchange& late);
  // Remembers the exception under way and tells the others, then rethrows.
  [[noreturn]] void fail_all();
  // Tells the world what broke the channel.
  void report() const noexcept;
  void show(Progress progress, const Exchange& exchange);
  // Rests until something changes; the time is what the exchange waited for its late peer.
  void rest(Batch& batch, std::size_t late, std::uint32_t changes, Nanoseconds limit);
  void note(const Batch& batch, void (FlightRing::*event)(std::uint64_t number)) const;

  std::unique_ptr<Link> link_;
  Options options_;
  std::vector<std::uint64_t> sequences_;
  std::vector<Nanoseconds> waits_;
  std::deque<std::shared_ptr<Batch>> open_;
  std::optional<std::thread::id> thread_;
  // What broke the channel; null while it works.
  std::exception_ptr failure_;
};

}  // namespace fsdptrain::comm
