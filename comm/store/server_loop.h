#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/store/server.h"
#include "comm/store/transport.h"

namespace fsdptrain::comm::store {

// Runs a Server over a Listener. One thread.
class ServerLoop {
 public:
  // `clock` must outlive the loop.
  ServerLoop(std::unique_ptr<Listener> listener, ServerOptions options, const Clock& clock);

  // Waits until something happens, at most `timeout`, and does what follows from it.
  void step(Nanoseconds timeout);
  Server& server() { return server_; }
  const Server& server() const { return server_; }

 private:
  void accept_all();
  // Whether the connection has ended.
  bool receive(Server::PeerId id, Connection& connection);
  bool send(Server::PeerId id, Connection& connection);

  std::unique_ptr<Listener> listener_;
  const Clock& clock_;
  Server server_;
  std::map<Server::PeerId, std::unique_ptr<Connection>> connections_;
  // While the system has no descriptor for one more connection.
  Nanoseconds accept_after_{};
};

// The store of a job, served by a thread of its own until the end of this object. Ranks that are
// still connected then see their connections end.
class ServerThread {
 public:
  ServerThread(std::unique_ptr<Listener> listener, ServerOptions options,
               const Clock& clock = monotonic_clock());
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  ~ServerThread();

  // For whoever started the ranks: what a rank cannot report itself. The first report wins.
  void report_failure(int rank, const std::string& text);
  // The first failure, printable.
  std::optional<std::string> failure() const;
  // Of all ranks, with all that had been sent when the call began.
  std::vector<Attendance> attendance();

 private:
  void serve();
  // How long the next round may wait; nothing at the end.
  std::optional<Nanoseconds> take_orders();
  void publish();

  // Outlives the loop, which owns it.
  Listener& listener_;
  // Who reports the ends of ranks prints failures, too.
  bool logs_failure_;
  ServerLoop loop_;
  mutable std::mutex mutex_;
  std::condition_variable answered_;
  bool stopping_ = false;
  bool has_stopped_ = false;
  // Rounds to go until attendance_ has all that was sent before the question.
  int rounds_left_ = 0;
  std::vector<Attendance> attendance_;
  std::optional<std::pair<int, std::string>> report_;
  std::optional<std::string> failure_;
  std::size_t num_logged_ = 0;
  std::thread thread_;
};

}  // namespace fsdptrain::comm::store
