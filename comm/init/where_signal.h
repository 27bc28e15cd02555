#pragma once

#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/clock.h"
#include "comm/flight/reader.h"
#include "runtime/base/descriptor.h"

namespace fsdptrain::comm {

// SIGUSR2 makes this process say on standard error where its ranks are, by their flight rings: also
// while they are stuck. It never ends the process. Made before the process has other threads: those
// started meanwhile hold the signal back, as they do SIGCONT, for which DebugBreak waits. A thread
// that was there before swallows what it takes.
class WhereSignal {
 public:
  WhereSignal();
  WhereSignal(const WhereSignal&) = delete;
  WhereSignal& operator=(const WhereSignal&) = delete;
  ~WhereSignal();

  // The ring is told of from now on, until forget(). From any thread; `ring` is the descriptor of
  // FlightMemory, and stays open.
  void watch(int ring);
  void forget(int ring);

 private:
  void serve();
  void print() const;

  sigset_t before_{};
  struct sigaction action_before_ {};
  Descriptor arrived_;
  Descriptor wake_;
  mutable std::mutex mutex_;
  std::vector<int> rings_;
  std::thread watcher_;
};

// Has the ring watched for the lifetime of this object.
class WatchedRing {
 public:
  WatchedRing(WhereSignal& signal, int ring) : signal_(signal), ring_(ring) { signal_.watch(ring); }
  WatchedRing(const WatchedRing&) = delete;
  WatchedRing& operator=(const WatchedRing&) = delete;
  ~WatchedRing() { signal_.forget(ring_); }

 private:
  WhereSignal& signal_;
  int ring_;
};

}  // namespace fsdptrain::comm
