#include "tests/fakecuda/call.h"

#include <fmt/format.h>

#include "tests/fakecuda/thread_sanitizer.h"

namespace fsdptrain::fakecuda {
namespace {

cudaError_t run_call(const char* name, bool is_query, const CallBody& body) {
  if (!machine()) {
    return cudaErrorNoDevice;
  }
  // Before anything that would order this thread.
  const Quiet quiet(machine()->has_workers());
  Machine& here = *machine();
  const CallSite site = CallSite::here();
  ThreadState& thread = this_thread(here);
  // An operation holds the lock while it runs, unless it is a worker's.
  std::unique_lock lock(here.mutex, std::defer_lock);
  if (!thread.is_in_op || here.has_workers()) {
    lock.lock();
  }
  if (thread.is_in_op) {
    here.report(ReportKind::InvalidUse,
                fmt::format("{} is called from inside of an operation", name),
                std::vector{Place{.what = "called", .site = site}});
    return cudaErrorNotPermitted;
  }
  Host& host = thread.rank != nullptr ? *thread.rank : here.outside;
  Call call{.name = name, .host = host, .lock = lock, .site = site};
  if (is_query) {
    return body(here, call);
  }
  host.last_call = name;
  host.last_site = site;
  here.maybe_yield(call);
  const Device& device = here.devices[static_cast<std::size_t>(thread.device)];
  const cudaError_t result = device.error != cudaSuccess ? device.error : body(here, call);
  if (result != cudaSuccess && result != cudaErrorNotReady) {
    thread.last_error = result;
  }
  return result;
}

}  // namespace

ThreadState& this_thread(const Machine& machine) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as in CUDA, one per thread.
  static thread_local ThreadState state;
  if (state.session_number != machine.session_number) {
    state = {.session_number = machine.session_number};
  }
  return state;
}

cudaError_t cuda_call(const char* name, const CallBody& body) {
  return run_call(name, false, body);
}

cudaError_t cuda_query(const char* name, const CallBody& body) {
  return run_call(name, true, body);
}

}  // namespace fsdptrain::fakecuda
