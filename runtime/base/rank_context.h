#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/device_context.h"
#include "runtime/base/isa.h"
#include "runtime/base/kernel_profile.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/view.h"

namespace fsdptrain {

namespace autograd {
class ModuleScope;
class ParameterOwner;
class Pass;
class Region;
struct RegionFrame;
class WatchGuard;
}  // namespace autograd

class HostSchedule;

// What keys the random numbers of a training step. Equal keys give equal numbers, whatever the
// number of ranks and threads.
struct RandomKeys {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // The global number of the first sample of the micro-batch under way.
  std::uint64_t first_sample = 0;
};

struct AutogradState {
  bool grad_enabled = true;
  // Numbers nodes in order of creation.
  std::uint64_t next_sequence = 0;
  // Numbers the forwards that compute a gradient ahead of their backward.
  std::uint64_t last_gradient_ahead = 0;
  // The backward pass under way, null outside one; owned by the engine's stack frame.
  autograd::Pass* pass = nullptr;
  // The innermost recomputed region that runs, null outside of any; owned by its stack frame.
  autograd::RegionFrame* region = nullptr;
  // The innermost module whose forward is under way, null outside of any; owned by its stack frame.
  const autograd::ModuleScope* module = nullptr;
  // Sees the values that are computed from now on, or null.
  const autograd::WatchGuard* watch = nullptr;
  // Owners whose units' forwards are under way, innermost last.
  std::vector<autograd::ParameterOwner*> open_owners;
  // Regions that the pass under way has replayed.
  std::vector<std::weak_ptr<autograd::Region>> replayed;
};

// Everything a rank owns that is not a tensor or a module: there is no other process state. A
// context is bound to one thread at a time; ranks that are threads of one process have one each.
class RankContext {
 public:
  struct Options {
    // 0: one per processor that this process may run on.
    int threads = 0;
    // Empty: select_isa(). ConfigError if this CPU cannot run it.
    std::optional<Isa> isa = std::nullopt;
    // In front of every log line, for example "[rank 3] ".
    std::string log_prefix = {};
  };

  RankContext() : RankContext(Options{}) {}
  explicit RankContext(const Options& options);
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;
  ~RankContext() = default;

  Isa isa() const { return isa_; }
  ThreadPool& pool() { return pool_; }
  const std::string& log_prefix() const { return log_prefix_; }
  // Made at its first use; DeviceError as make_cuda_api().
  DeviceContext& device(Device device);
  Allocator& allocator(Device device) { return this->device(device).allocator(); }
  // On the device's current stream.
  Launch launch(Device device);

  RandomKeys random;
  AutogradState autograd;
  // Measures what is launched from now on, or null.
  KernelProfile* profile = nullptr;
  // Decides which of several ranks of this process goes on, or null: the system does.
  HostSchedule* schedule = nullptr;

 private:
  friend class ContextGuard;
  void bind();
  void unbind();

  Isa isa_;
  ThreadPool pool_;
  std::string log_prefix_;
  DeviceContext host_;
  DeviceContext meta_;
  // By their index.
  std::map<int, std::unique_ptr<DeviceContext>> cuda_;
  // The thread this is bound to, none for the default id, and its guards, which it alone counts.
  std::atomic<std::thread::id> owner_{};
  int bindings_ = 0;
};

// The context bound to this thread; Error if there is none.
RankContext& current_context();

// Makes a stream the current one of its device in the bound context, for the lifetime of the guard:
// ops are launched there, and memory is allocated for it.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard();

 private:
  DeviceContext& device_;
  Stream previous_;
};

// The log prefix of the bound context; empty where none is bound.
const std::string& bound_log_prefix();

// Binds a context to this thread for the lifetime of the guard. Guards nest; Error if
// the context is bound on another thread.
class ContextGuard {
 public:
  explicit ContextGuard(RankContext& context);
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard();

 private:
  RankContext& context_;
  RankContext* previous_;
};

// Measures the bound context with `profile`, which outlives the guard, for the lifetime of the
// guard; then what measured it before does so again.
class ProfileGuard {
 public:
  explicit ProfileGuard(KernelProfile& profile);
  ProfileGuard(const ProfileGuard&) = delete;
  ProfileGuard& operator=(const ProfileGuard&) = delete;
  ~ProfileGuard();

 private:
  RankContext& context_;
  KernelProfile* previous_;
};

}  // namespace fsdptrain
