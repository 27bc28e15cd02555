#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "comm/store/transport.h"

namespace fsdptrain::testing {

class SimClock final : public comm::Clock {
 public:
  comm::Nanoseconds now() const override { return time; }

  comm::Nanoseconds time{std::chrono::hours(1)};
};

// A network in one thread, with a clock of its own. While one end waits, everybody else goes on:
// `others` is called, and what was put on the agenda by `at` happens in its time. When nothing
// moves, the clock jumps to the next moment at which something can. The seed decides everything.
class SimNetwork {
 public:
  explicit SimNetwork(std::uint64_t seed = 1) : random(seed) {}
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // Must not outlive the network.
  std::unique_ptr<comm::store::Connection> connect();
  std::unique_ptr<comm::store::Listener> listen();

  void at(comm::Nanoseconds time, std::function<void()> event) {
    agenda_.emplace(time, std::move(event));
  }
  std::uint64_t below(std::uint64_t end) { return random() % end; }
  // Grows with every byte that moves and every connection that begins or ends.
  std::uint64_t num_moves() const { return num_moves_; }

  SimClock clock;
  std::mt19937_64 random;
  std::function<void()> others = [] {};
  // At most so many bytes move at once; a random number of them if `jitter`.
  std::size_t max_chunk = std::size_t{1} << 16;
  bool jitter = false;
  // What one direction holds before a sender must wait.
  std::size_t capacity = std::size_t{1} << 16;
  // accept() finds no descriptor.
  bool exhausted = false;
  int num_accept_calls = 0;

 private:
  friend class SimConnection;
  friend class SimListener;

  struct Pipe {
    std::string bytes;
    bool has_writer = true;
    bool has_reader = true;
  };
  struct Link {
    Pipe pipes[2];
  };

  std::size_t chunk(std::size_t available) {
    const std::size_t most = std::min(available, max_chunk);
    return jitter && most > 0 ? 1 + static_cast<std::size_t>(below(most)) : most;
  }
  // One round of everybody else; whether anything moved.
  bool run_others() {
    const std::uint64_t before = num_moves_;
    while (!agenda_.empty() && agenda_.begin()->first <= clock.time) {
      const auto event = agenda_.extract(agenda_.begin());
      ++num_moves_;
      event.mapped()();
    }
    others();
    return num_moves_ != before;
  }
  void advance(comm::Nanoseconds end) {
    clock.time = agenda_.empty() ? end : std::min(end, agenda_.begin()->first);
  }

  std::deque<std::shared_ptr<Link>> arrivals_;
  std::multimap<comm::Nanoseconds, std::function<void()>> agenda_;
  std::uint64_t num_moves_ = 0;
};

class SimConnection final : public comm::store::Connection {
 public:
  SimConnection(SimNetwork& network, std::shared_ptr<SimNetwork::Link> link, int side)
      : network_(network), link_(std::move(link)), side_(side) {}
  ~SimConnection() override {
    out().has_writer = false;
    in().has_reader = false;
    ++network_.num_moves_;
  }

  comm::store::Transfer send(std::string_view bytes) override {
    if (!out().has_reader) {
      return {.ended = true};
    }
    const std::size_t space = network_.capacity - std::min(network_.capacity, out().bytes.size());
    const std::size_t nbytes = network_.chunk(std::min(bytes.size(), space));
    out().bytes += bytes.substr(0, nbytes);
    network_.num_moves_ += nbytes;
    return {.nbytes = nbytes};
  }

  comm::store::Transfer receive(std::string& bytes, std::size_t max_bytes) override {
    const std::size_t nbytes = network_.chunk(std::min(max_bytes, in().bytes.size()));
    bytes += in().bytes.substr(0, nbytes);
    in().bytes.erase(0, nbytes);
    network_.num_moves_ += nbytes;
    return {.nbytes = nbytes, .ended = nbytes == 0 && !in().has_writer};
  }

  void wait(bool or_writable, comm::Nanoseconds timeout) override {
    const comm::Nanoseconds end = network_.clock.now() + timeout;
    while (true) {
      const bool moved = network_.run_others();
      if (is_ready(true, or_writable) || network_.clock.now() >= end) {
        return;
      }
      if (!moved) {
        network_.advance(end);
      }
    }
  }

  bool is_ready(bool readable, bool writable) {
    return (readable && (!in().bytes.empty() || !in().has_writer)) ||
           (writable && out().bytes.size() < network_.capacity) || !out().has_reader;
  }

 private:
  SimNetwork::Pipe& in() { return link_->pipes[side_]; }
  SimNetwork::Pipe& out() { return link_->pipes[1 - side_]; }

  SimNetwork& network_;
  std::shared_ptr<SimNetwork::Link> link_;
  int side_;
};

// Its wait() takes no time: whoever drives the server decides when time passes.
class SimListener final : public comm::store::Listener {
 public:
  explicit SimListener(SimNetwork& network) : network_(network) {}

  comm::store::Accepted accept() override {
    ++network_.num_accept_calls;
    if (network_.exhausted || network_.arrivals_.empty()) {
      return {.connection = nullptr, .exhausted = network_.exhausted};
    }
    auto link = std::move(network_.arrivals_.front());
    network_.arrivals_.pop_front();
    ++network_.num_moves_;
    return {.connection = std::make_unique<SimConnection>(network_, std::move(link), 1)};
  }
  void wait(std::span<comm::store::Interest> interests, bool /*accepting*/,
            comm::Nanoseconds /*timeout*/) override {
    for (comm::store::Interest& interest : interests) {
      interest.ready = static_cast<SimConnection*>(interest.connection)
                           ->is_ready(interest.readable, interest.writable);
    }
  }
  void wake() override {}

 private:
  SimNetwork& network_;
};

inline std::unique_ptr<comm::store::Connection> SimNetwork::connect() {
  arrivals_.push_back(std::make_shared<Link>());
  return std::make_unique<SimConnection>(*this, arrivals_.back(), 0);
}

inline std::unique_ptr<comm::store::Listener> SimNetwork::listen() {
  return std::make_unique<SimListener>(*this);
}

}  // namespace fsdptrain::testing
