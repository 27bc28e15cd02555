#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "comm/store/peer.h"
#include "comm/store/table.h"

namespace fsdptrain::comm::store {

struct ServerOptions {
  std::string job_id;
  Secret token;
  int world_size;
  NonceSource nonce = random_nonce;
  // Whether the end of a connection before its goodbye is the failure of its rank. Whoever started
  // the ranks sees how they end, says more about it, and reports it by itself; he also prints it,
  // and a ServerThread does not.
  bool reports_ends = true;
};

// Of a rank in a job.
enum class Attendance : std::uint8_t {
  Never,  // no connection of it was taken in
  Here,
  Left,  // it said goodbye
  Lost,  // its connection ended before
};

// The store as a state machine: connections and bytes in, bytes out; no I/O, no waiting, and time
// is the clock's. One thread at a time.
//
// Peers are not believed: the first byte that breaks the protocol closes the connection, and what
// the server holds for each is bounded (`buffered_bytes`). A rank whose connection ends before its
// goodbye, for whatever reason, has failed (but see ServerOptions); the first failure is told to
// every rank, and ends all requests.
class Server {
 public:
  using PeerId = std::uint64_t;

  // The most that receive() takes at once.
  static constexpr std::size_t kMaxReceive = std::size_t{64} << 10;
  // A peer with more to receive than this is not listened to.
  static constexpr std::size_t kMaxOutput = std::size_t{64} << 10;

  // `clock` must outlive the server.
  Server(ServerOptions options, const Clock& clock);

  // A connection was made; nothing if there are too many, and it has to be closed.
  std::optional<PeerId> connect();
  // Bytes of a peer; ignored when it is closing. REQUIRES: wants_input, at most kMaxReceive bytes.
  void receive(PeerId peer, std::string_view bytes);
  bool wants_input(PeerId peer) const;
  // What has to be sent to the peer next, valid until the next call.
  std::string_view output(PeerId peer) const;
  // The first bytes of the output were sent.
  void sent(PeerId peer, std::size_t nbytes);
  // The connection must be closed by the caller, who then calls disconnect().
  bool is_closed(PeerId peer) const;
  // The connection has ended; the id is never used again.
  void disconnect(PeerId peer);

  // When tick() has something to do at the latest.
  std::optional<Nanoseconds> next_deadline() const;
  // Gives up what took too long.
  void tick();

  // A failure that no rank can report itself, such as its death.
  void report_failure(int rank, std::string_view text);
  // The first one, "rank 3 failed: ..."; what is behind the colon may be hostile (printable()).
  const std::optional<std::string>& failure() const { return failure_; }

  std::size_t num_connections() const { return peers_.size(); }
  std::vector<int> ranks() const;
  // Of all ranks of the world.
  const std::vector<Attendance>& attendance() const { return attendance_; }
  // All that is held for connections; what the store holds is of stored_bytes().
  std::size_t buffered_bytes() const;
  std::size_t stored_bytes() const { return table_.nbytes(); }
  // Why connections that proved nothing, or were refused, were closed: the last few.
  std::vector<std::string> take_refusals();

 private:
  // Who waits for a key.
  struct Waiter {
    PeerId peer;
    std::uint64_t request;
    friend bool operator==(const Waiter&, const Waiter&) = default;
  };

  // Does what can be done for the peers in `busy_`, until there is none.
  void work();
  // One reply or one frame of the inbox; false when there is nothing to do.
  bool step(PeerId id, Peer& peer);
  std::optional<Frame> next_frame(Peer& peer);
  void read_frame(PeerId id, Peer& peer, const Frame& frame);
  void welcome(PeerId id, Peer& peer, const Frame& proof);
  // After a broken protocol: sends `refusal` if there is one, and closes.
  void refuse(PeerId id, Peer& peer, std::optional<Refusal> refusal, const std::string& reason);
  // Sends what is left, for a limited time, and listens no more.
  void close(Peer& peer);
  // Ends the membership; for `reason`, unless the rank said goodbye.
  void leave(PeerId id, Peer& peer, const std::string& reason, bool is_end = false);

  // server_requests.cpp
  void handle(PeerId id, Peer& peer, Request request);
  void change(Peer& peer, Request request);
  void wait_for(PeerId id, Peer& peer, Request request);
  void cancel(PeerId id, Peer& peer, std::uint64_t request);
  // The key is there: requests that miss nothing else become ready.
  void wake(const std::string& key);
  void forget(PeerId id, Peer& peer, std::uint64_t request);
  bool answer_ready(PeerId id, Peer& peer);

  static void send(Peer& peer, FrameType type, std::string_view body);
  static void reply(Peer& peer, const Reply& reply);

  ServerOptions options_;
  const Clock& clock_;
  Table table_;
  PeerId next_peer_ = 1;
  std::map<PeerId, Peer> peers_;
  std::map<int, PeerId> members_;
  std::vector<Attendance> attendance_;
  std::map<std::string, std::vector<Waiter>, std::less<>> waiters_;
  std::set<PeerId> busy_;
  std::optional<std::string> failure_;
  std::vector<std::string> refusals_;
};

}  // namespace fsdptrain::comm::store
