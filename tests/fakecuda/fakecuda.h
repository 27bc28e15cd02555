#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/base/error.h"
#include "runtime/base/host_schedule.h"
#include "tests/fakecuda/range.h"
#include "tests/fakecuda/rendezvous.h"
#include "tests/fakecuda/report.h"
#include "tests/support/virtual_time.h"

// A CUDA runtime that needs no GPU, for tests. It defines the cuda* functions that the project
// uses, under NVIDIA's own headers, and is linked in place of libcudart.
//
// Streams are queues of operations. A call that CUDA calls asynchronous only appends; operations
// run one at a time, inside of later calls, in a legal order that the seed chooses. Every operation
// has a vector clock over streams and host threads, and every byte of device and pinned memory
// remembers who wrote and read it last. Two accesses that no wait orders are reported whatever the
// order in which they happened to run.
//
// Device memory cannot be touched by the host outside of operations: a raw access ends the process
// with kHostAccessExit and a line on stderr that names the allocation.
namespace fsdptrain::fakecuda {

class Machine;

// What a host access to protected memory ends the process with.
inline constexpr int kHostAccessExit = 86;

// Nobody can run: thrown once by the blocking call of each host thread. After it, CUDA calls return
// cudaErrorLaunchTimeout and operations no longer run.
class HangError : public Error {
 public:
  using Error::Error;
};

// What one stream does in a rendezvous, and what of its memory is touched there.
struct Part {
  std::shared_ptr<Rendezvous> rendezvous;
  std::size_t participant = 0;
  std::vector<Range> reads = {};
  std::vector<Range> writes = {};
};

// What an allocator that hands out parts of an allocation knows: of `block`, the first `in_use`
// bytes have got a new owner and hold nothing, and the others belong to nobody. Ordered as a write
// of the whole block.
struct Mark {
  Range block = {};
  std::size_t in_use = 0;
};

struct OpSpec {
  // "layer_norm"; trace, reports and faults know it by this name.
  std::string name = {};
  // All that is read and written, or nothing if `run` tells of each access (on_access). Ranges may
  // overlap; a strided view is one range per row. They are checked before the operation runs; it
  // does not run if one lies outside of live memory. An operation that has ranges can touch no
  // other pages of device memory: it ends the process as a host access does.
  std::vector<Range> reads = {};
  std::vector<Range> writes = {};
  // What it does, if anything; owns all it needs. Runs on some host thread, one at a time; makes no
  // CUDA call.
  std::function<void()> run = {};
  // It stops at each of them until that one is done, then runs.
  std::vector<Part> parts = {};
  std::optional<Mark> mark = {};
  // In virtual time.
  std::chrono::nanoseconds duration{0};
  testing::Resource resource = testing::Resource::Compute;
};

// Appends an operation to a stream, as a kernel launch does. cudaSuccess, or the sticky error of
// the stream's device.
cudaError_t enqueue(cudaStream_t stream, OpSpec op);

// For instrumented kernels: one access of the operation that runs now, checked as a declared one.
// May be called by any thread that works for the operation. Nothing happens outside of one.
// Whether the bytes may be touched.
bool on_access(const void* data, std::size_t nbytes, bool is_write);

enum class Access { Read, Write };

// The host touches memory: device memory is reported, pinned memory is compared with pending and
// past operations, other memory is none of our business. False if something was reported.
bool check_host_access(const void* data, std::size_t nbytes, Access access);

// Names for reports and traces, instead of a number.
void name_stream(cudaStream_t stream, std::string name);
void name_memory(const void* allocation, std::string name);

// The number of the device that a stream belongs to.
int device_of(cudaStream_t stream);

// A call that orders something: a stream waits for an event, the host for an event or a stream, or
// an event is recorded for such a wait.
struct OrderingCall {
  int device = 0;
  // "'gather' waits for 'compute', after 'copy', before 'ncclAllGather'"
  std::string text = {};
};

// Of the calls of a device that order something, counted from 1, one that is as if it were not
// there. A host that does not wait reads 0x7f where a copy to pinned memory is still to come.
struct DroppedCall {
  int device = 0;
  std::uint64_t number = 0;
};

// Planned failures. Numbers count from 1 over all devices of the session.
struct Faults {
  // These calls return cudaErrorMemoryAllocation.
  std::vector<std::uint64_t> failing_mallocs = {};
  std::vector<std::uint64_t> failing_host_mallocs = {};
  // The n-th operation to run, or the first one of this name, breaks its device: it and all later
  // ones do not run, and every later call on that device returns cudaErrorIllegalAddress.
  std::uint64_t broken_op = 0;
  std::string broken_op_name = {};
  // Streams, by number in order of creation, counted from 0, whose operations run only when nothing
  // else can.
  std::vector<int> delayed_streams = {};
  // With Mode::Ordered.
  std::optional<DroppedCall> dropped_call = {};
};

enum class Mode {
  // One operation and one rank at a time, in the order of the seed.
  Ordered,
  // A thread for each stream, and threads of ranks as they come, for the thread sanitizer, which
  // learns of no order but the one that CUDA promises. A hang is a minute without progress. Memory
  // is not protected from the host, on_access() and the order of Faults::delayed_streams do
  // nothing.
  Threads,
};

struct Options {
  Mode mode = Mode::Ordered;
  // 0: issue order; 1: the newest stream and the highest rank first; 2: as late as possible, only
  // what somebody waits for; 3 and up: random.
  std::uint64_t seed = 0;
  int num_devices = 1;
  // Of each device.
  std::size_t device_memory = std::size_t{1} << 30;
  Faults faults = {};
  // How long a copy takes in virtual time; empty: no time.
  std::function<std::chrono::nanoseconds(std::size_t nbytes)> copy_duration = {};
  // Whether a host thread that looks whether something has ended, or waits for another rank, knows
  // from then on what happened before: it does, but may have been lucky. Without, it may free
  // memory by it, and all else is ordered as the program orders it, in whatever order it ran.
  bool learns_by_looking = true;
  // Whether a raw host access to device memory ends the process.
  bool protects_memory = true;
  // What happens to reports that nobody has looked at when the session ends. Empty: they are
  // printed and the process aborts.
  std::function<void(const std::string&)> unseen = {};
};

// The machine, from a fresh start to its end. One at a time in a process; no CUDA call may be under
// way when it begins or ends, and calls outside of any return cudaErrorNoDevice.
class Session {
 public:
  explicit Session(const Options& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Ends the session if finish() did not.
  ~Session();

  // All so far; whoever asks has seen them.
  std::vector<Report> reports();
  // Runs what is still queued, reports what is left (leaks, operations that cannot run) and takes
  // the machine down.
  void finish();
  // Executed steps and hand-overs between host threads, one line each: equal runs, equal lines.
  std::vector<std::string> trace() const;
  // What ran, for testing::simulate().
  std::vector<testing::VirtualOp> virtual_ops() const;
  // So far, each as Faults::dropped_call counts them.
  std::vector<OrderingCall> ordering_calls() const;
  std::uint64_t num_ordering_calls(int device) const;
  // For each operation that ran and each access of the host that was checked, in the order of the
  // calls: a number for its stream or host, and up to which operation of each stream it is ordered
  // behind. Equal orders, equal rows.
  std::vector<std::vector<std::uint32_t>> orders() const;
  // How often cudaMalloc, or cudaMallocHost and cudaHostAlloc, were called.
  std::uint64_t num_mallocs() const;
  std::uint64_t num_host_mallocs() const;
  std::uint64_t num_ops_run() const;
  // Live bytes that cudaMalloc gave out on a device.
  std::size_t device_bytes(int device) const;

  // For `num_threads` rank threads, once in a session; valid as long as the session. Threads that
  // never began are together one more host thread, ordered after all ranks that ended.
  HostSchedule& host_schedule(int num_threads);

 private:
  std::shared_ptr<Machine> machine_;
  std::size_t num_seen_ = 0;
};

}  // namespace fsdptrain::fakecuda
