#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/error.h"
#include "comm/store/session.h"
#include "comm/store/transport.h"

namespace fsdptrain::comm {

// The key-value store of a job, as one rank sees it: how ranks find each other, and how they hear
// of failures. Values are any bytes.
//
// Any number of threads may call at the same time; a call that waits delays no other. Every call
// has a deadline, `timeout` from its begin, and throws
// - TimeoutError with the keys and the time when it has passed; the operation may have happened (a
//   store that is silent is given 2 s more to say so);
// - PeerError with "rank 3 failed: ..." once any rank has failed, then from every call, and when
//   the connection to the store has ended;
// - MisuseError where the call breaks a limit or a rule; nothing has changed then;
// - ProtocolError when the store sends what it must not; the connection is of no use then.
//
// A rank that ends without close() has failed, for all others. The destructor does not say goodbye:
// it also runs when an error unwinds the rank.
class Store {
 public:
  // `clock` must outlive the store.
  struct Options {
    store::Identity identity;
    store::Secret token;
    const Clock& clock = monotonic_clock();
  };

  // Returns when the store has taken this rank in; ConfigError if it refuses, with the reason.
  Store(std::unique_ptr<store::Connection> connection, Options options, Nanoseconds timeout);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() = default;

  // Keys are printable ASCII, like paths: components separated by "/", at most 1 KiB. Keys below
  // "rank/R/" can only be written by rank R. A value has at most 8 MiB.
  void set(std::string_view key, std::string_view value, Nanoseconds timeout);
  // Waits until the key is there.
  std::string get(std::string_view key, Nanoseconds timeout);
  // Waits until all are there: at most 1,024, over all calls of this rank that wait. A timeout
  // names those that are not.
  void wait(std::span<const std::string> keys, Nanoseconds timeout);
  // Adds to a number, 0 where the key is not there, and returns the sum. The value of the key is
  // the number in 8 bytes, little-endian.
  std::int64_t add(std::string_view key, std::int64_t delta, Nanoseconds timeout);
  // Sets `desired` if the value is `expected`; std::nullopt stands for a key that is not there.
  // Returns what is there now.
  std::optional<std::string> compare_set(std::string_view key,
                                         const std::optional<std::string>& expected,
                                         std::string_view desired, Nanoseconds timeout);

  // Tells every rank "rank r failed: text", with r of this rank, and the text cut at 4 KiB. The
  // first report of all ranks wins. Returns when the store knows of a failure, this or another.
  void report_failure(std::string_view text, Nanoseconds timeout);
  // What the store has told: "rank 3 failed: ...". Does not wait.
  std::optional<std::string> failure();

  // Says goodbye: that this rank leaves is no failure. Every later call throws MisuseError.
  void close(Nanoseconds timeout);

 private:
  store::Reply call(store::Request request, Nanoseconds timeout);
  // Moves bytes until `done`; false if the deadline passes before.
  template <class Done>
  bool drive(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Done done);
  void wait_for_bytes(std::unique_lock<std::mutex>& lock, Nanoseconds timeout);
  // What can be moved without waiting.
  void send();
  void receive();
  void check_usable() const;

  const Clock& clock_;
  std::unique_ptr<store::Connection> connection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  store::ClientSession session_;
  // Whether a thread waits for the connection; it moves the bytes of all.
  bool is_waited_for_ = false;
  bool is_closed_ = false;
  // Keys that calls wait for.
  std::size_t num_waits_ = 0;
  // Why nothing can be sent or received any more.
  std::string broken_;
};

}  // namespace fsdptrain::comm
