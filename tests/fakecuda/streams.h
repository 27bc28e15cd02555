#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tests/fakecuda/clock.h"
#include "tests/fakecuda/fakecuda.h"

// What a machine consists of. All of it is guarded by the machine's lock.
namespace fsdptrain::fakecuda {

struct Stream;

// One recording of an event: what a wait waits for, whatever is recorded later.
struct Recording {
  Stream* stream = nullptr;
  bool done = false;
  Clock clock = {};
  std::chrono::nanoseconds time{0};
  // The last work before it, by name.
  std::string after = {};
};

struct Event {
  int number = 0;
  int device = 0;
  unsigned flags = 0;
  CallSite site = {};
  bool destroyed = false;
  std::shared_ptr<Recording> last = {};
};

// Who made an access: an operation, or a call of the host.
struct Accessor {
  std::string name = {};
  // "op 5, device 0, stream 1", "rank 0".
  std::string place = {};
  std::size_t component = 0;
  std::uint32_t tick = 0;
  // What had happened before it; of an operation, when it began.
  Clock clock = {};
  CallSite site = {};
};

struct Op {
  enum class Kind { Work, Record, Wait };

  Kind kind = Kind::Work;
  std::uint32_t number = 0;
  OpSpec spec = {};
  std::shared_ptr<Recording> recording = {};
  // What its host thread knew.
  Clock host_clock = {};
  bool arrived = false;
  // Code of the host: it may touch no device memory.
  bool is_host_function = false;
  // A wait that is not there.
  bool is_dropped = false;
};

struct Stream {
  // Of those that were created, counted from 0; -1 for a default stream.
  int number = -1;
  int device = 0;
  std::string name = {};
  // Its name without a number.
  std::string label = {};
  // What was launched there last, by name.
  std::string last_work = "nothing";
  CallSite site = {};
  std::size_t component = 0;
  Clock clock = {};
  // What testing::VirtualOp need not repeat.
  Clock exported = {};
  std::deque<Op> queue = {};
  bool destroyed = false;
  bool delayed = false;
  // Its worker runs the first operation and holds no lock.
  bool is_busy = false;
};

struct Device {
  // Sticky once it is not cudaSuccess.
  cudaError_t error = cudaSuccess;
  // For calls that name no stream; made when needed.
  Stream* default_stream = nullptr;
};

// A host thread, or all of those together that never began as a rank.
struct Host {
  enum class State { Running, Ready, Waiting, Ended };

  int rank = -1;
  std::string name = {};
  std::size_t component = 0;
  Clock clock = {};
  // What it has seen besides to have happened, if it does not learn by looking.
  Clock seen = {};
  State state = State::Running;
  std::condition_variable turn = {};
  // While it waits: for what, as nobody but the fake can tell or only as itself can tell.
  std::function<bool()> ready = {};
  bool ready_is_ours = false;
  const Stream* awaited = nullptr;
  // The progress count when it last found itself not ready.
  std::uint64_t checked_at = 0;
  bool has_thrown = false;
  std::string last_call = "no call";
  CallSite last_site = {};
};

// One CUDA call under way.
struct Call {
  const char* name;
  Host& host;
  std::unique_lock<std::mutex>& lock;
  CallSite site;
};

}  // namespace fsdptrain::fakecuda
