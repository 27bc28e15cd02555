#include "tests/fakecuda/call.h"

#include <fmt/format.h>

namespace fsdptrain::fakecuda {
namespace {

cudaError_t run_call(const char* name, bool is_query, const CallBody& body) {
  const std::shared_ptr<Machine> held = machine();
  if (!held) {
    return cudaErrorNoDevice;
  }
  Machine& here = *held;
  const CallSite site = CallSite::here();
  if (here.op_thread == std::this_thread::get_id()) {
    // The running operation holds the lock.
    const std::string& op = here.accessors[here.running_op].name;
    here.report(ReportKind::InvalidUse, fmt::format("{} is called from inside of '{}'", name, op),
                std::vector{Place{.what = "called", .site = site}});
    return cudaErrorNotPermitted;
  }
  std::unique_lock lock(here.mutex);
  ThreadState& thread = this_thread(here);
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
