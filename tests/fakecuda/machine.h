#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/fakecuda/clock.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/host_access.h"
#include "tests/fakecuda/memory.h"
#include "tests/fakecuda/streams.h"

namespace fsdptrain::fakecuda {

// The state of a session and what can be done with it. All of it is guarded by `mutex`, which the
// running operation's thread holds as well, but for `access_mutex`, which guards what on_access
// needs while an operation runs.
class Machine {
 public:
  explicit Machine(const Options& machine_options);

  // Streams and events (machine.cpp).
  Stream* create_stream(int device, const Call& call);
  Stream* default_stream(int device);
  // Null and a report if the handle is no live stream.
  Stream* find_stream(cudaStream_t handle, const Call& call);
  Event* find_event(cudaEvent_t handle, const Call& call);
  Op& enqueue(Stream& stream, Op op, const Call& call);

  // Calls that order (ordering.cpp): whether this one is to have its effect.
  bool orders_wait(const Stream& stream, const Recording& recording);
  bool orders_host(const Stream& stream, const std::string& after);
  bool orders_record(const Stream& stream);
  // Names what comes behind the waits of the stream.
  void note_launch(Stream& stream, const Op& op);

  // Execution (execute.cpp).
  bool can_step(const Stream& stream) const;
  void step(Stream& stream);
  void break_device(int device);

  // Who goes on (hosts.cpp, choice.cpp).
  // Where the seed says so, lets others act before a call does.
  void maybe_yield(Call& call);
  // Runs operations and other host threads until `ready()`, which only looks at this machine.
  // HangError if that will never be; false if so and the thread has been told once, or is on its
  // way out with another exception. Lazy orders run
  // what `awaited` needs; null: anything.
  bool block(Call& call, const Stream* awaited, std::function<bool()> ready);
  // The same for a condition of the caller's, called without the lock. Always throws.
  void wait(Call& call, const std::function<bool()>& ready);
  // As cudaStreamSynchronize and cudaDeviceSynchronize.
  cudaError_t synchronize(Call& call, Stream& stream);
  cudaError_t synchronize_device(Call& call, int device);
  void begin(Host& host, std::unique_lock<std::mutex>& lock);
  void end(Host& host);
  // Runs operations until none can.
  void drain();
  std::string hang_text() const;

  // Streams as threads (workers.cpp).
  bool has_workers() const { return options.mode == Mode::Threads; }
  void stop_workers();
  // What the thread sanitizer must know of the calling thread, which is the fake's otherwise.
  void loudly_release(const void* token) const;
  void loudly_acquire(const void* token) const;
  void loudly_touch(const std::vector<Range>& ranges, bool is_write) const;
  // The host thread looked, and what a stream or a recording knows had happened.
  void show(Host& host, const Clock& clock, const void* token) const {
    if (options.learns_by_looking) {
      tell(host, clock, token);
    } else {
      host.seen.join(clock);
    }
  }
  // All that it waited for or has seen.
  static Clock known_to(const Host& host) {
    Clock known = host.clock;
    known.join(host.seen);
    return known;
  }
  // Whether anything happened; false after a time in which nothing did.
  bool wait_for_progress(std::unique_lock<std::mutex>& lock);
  // The host thread knows from now on what a stream or a recording knows.
  void tell(Host& host, const Clock& clock, const void* token) const {
    host.clock.join(clock);
    loudly_acquire(token);
  }

  // Memory (access.cpp).
  // Whether all of the range may be touched; reports what is wrong about it.
  bool check_access(const Range& range, bool is_write, std::uint32_t accessor);
  // Reports accesses to the block that may still be under way.
  void mark(const Mark& block, std::uint32_t accessor);
  bool check_ranges(const std::vector<Range>& reads, const std::vector<Range>& writes,
                    std::uint32_t accessor);
  std::uint32_t add_host_accessor(const Call& call, std::string name);
  // Reports those that touch it, or will, and are not known to have ended.
  void check_free(Allocation& allocation, const Clock& known, const Call& call);
  void report(ReportKind kind, std::string text, std::vector<Place> places);
  // A mistake of the call itself.
  void report(ReportKind kind, std::string text, const Call& call);

  const Options options;
  const std::uint64_t session_number;
  std::unique_ptr<HostAccessHandler> handler;
  std::unique_ptr<HostSchedule> schedule;
  std::mutex mutex;
  std::mutex access_mutex;
  Memory memory;
  std::vector<Device> devices;
  std::deque<Stream> streams;
  int num_created_streams = 0;
  std::deque<Event> events;
  std::deque<Accessor> accessors;
  std::size_t num_components = 0;
  std::vector<Report> reports;
  std::vector<std::string> trace;
  std::vector<testing::VirtualOp> virtual_ops;
  // By component and tick, the index in virtual_ops.
  std::vector<std::map<std::uint32_t, std::size_t>> virtual_index;
  std::vector<OrderingCall> ordering_calls;
  // Of waits that nothing was launched behind yet: their stream, and which call.
  std::vector<std::pair<const Stream*, std::size_t>> open_waits;
  std::uint64_t num_mallocs = 0;
  std::uint64_t num_host_mallocs = 0;
  std::uint64_t num_ops_run = 0;
  std::chrono::nanoseconds now{0};

  // The operation that runs, where one runs at a time.
  std::atomic<std::uint32_t> running_op = 0;

  Host outside;
  std::deque<Host> ranks;
  int num_begun = 0;
  Host* current = nullptr;
  bool hung = false;
  // Who was where when it hung.
  std::string hang;
  std::uint64_t progress = 1;
  // What threads wait for that are no ranks.
  std::condition_variable progressed;
  std::deque<std::jthread> workers;
  bool workers_stop = false;

 private:
  using ReportKey = std::tuple<ReportKind, std::uint32_t, std::uint32_t, std::uint64_t>;

  Stream* add_stream(int device, std::string name);
  bool add_ordering_call(int device, std::string text);
  std::uint64_t draw(std::uint64_t end) { return random_() % end; }
  void begin_op(Stream& stream, Op& op);
  void step_work(Stream& stream, Op& op);
  void arrive(Stream& stream, Op& op);
  void run_rendezvous(Rendezvous& rendezvous);
  void finish(Stream& stream, Op& op);
  void run(const std::function<void()>& body, std::uint32_t number);
  void add_worker(Stream& stream);
  void work(Stream& stream);
  void run_unlocked(const std::function<void()>& body);
  bool breaks(const OpSpec& spec);
  void export_op(Stream& stream, const Op& op);
  void export_rendezvous(const Rendezvous& rendezvous);
  std::vector<std::size_t> dependencies(const Clock& clock, Stream& stream);

  std::vector<Stream*> runnable_streams(bool delayed);
  std::vector<Stream*> needed_streams(const Stream* awaited);
  Stream* choose_stream(const std::vector<Stream*>& runnable, const Stream* awaited);
  std::vector<Host*> runnable_hosts(const Host& me);
  Host* choose_host(const std::vector<Host*>& hosts, const Host& me);
  bool goes_to_host(std::size_t num_streams, std::size_t num_hosts);
  // Whether anything happened; throws when nothing can any more.
  bool let_others_act(Call& call, const Stream* awaited);
  void hand_over(Host& me, Host& other, std::unique_lock<std::mutex>& lock);

  void report_conflict(std::uint32_t accessor, bool is_write, std::uint32_t earlier,
                       bool earlier_wrote, const Allocation& allocation, std::size_t offset);
  bool is_new(ReportKey key) { return reported_.insert(key).second; }

  std::mt19937_64 random_;
  std::set<ReportKey> reported_;
};

// The machine of the session under way, or null.
std::shared_ptr<Machine>& machine();

}  // namespace fsdptrain::fakecuda
