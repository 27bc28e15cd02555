#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "tests/fakecuda/call.h"
#include "tests/fakecuda/host_access.h"
#include "tests/fakecuda/rank_schedule.h"

// What tests and stand-ins call besides CUDA.
namespace fsdptrain::fakecuda {
namespace {

void print_and_abort(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::abort();
}

void report_leaks(Machine& machine) {
  for (const Device& device : machine.devices) {
    // Nothing of a broken device can be freed.
    if (device.error != cudaSuccess) {
      return;
    }
  }
  const auto leak = [&](std::string what, const CallSite& site) {
    machine.report(ReportKind::Leak, std::move(what), {{"made", site}});
  };
  for (const auto& [begin, allocation] : machine.memory.all()) {
    if (!allocation.freed) {
      leak(to_string(allocation), allocation.site);
    }
  }
  for (const Stream& stream : machine.streams) {
    if (!stream.destroyed && stream.number >= 0) {
      leak(fmt::format("{} of device {}", stream.name, stream.device), stream.site);
    }
  }
  for (const Event& event : machine.events) {
    if (!event.destroyed) {
      leak(fmt::format("event {}", event.number), event.site);
    }
  }
}

}  // namespace

bool on_access(const void* data, std::size_t nbytes, bool is_write) {
  const std::shared_ptr<Machine>& here = machine();
  // A stream's worker is seen by the sanitizer instead.
  const std::uint32_t op = here ? here->running_op.load() : 0;
  if (op == 0) {
    return true;
  }
  const std::lock_guard lock(here->access_mutex);
  return here->check_access({data, nbytes}, is_write, op);
}

bool check_host_access(const void* data, std::size_t nbytes, Access access) {
  const bool is_write = access == Access::Write;
  bool clean = true;
  cuda_call(is_write ? "host write" : "host read", [&](Machine& here, Call& call) {
    const auto begin = reinterpret_cast<Address>(data);
    const Allocation* found = here.memory.find(begin);
    if (found == nullptr && !here.memory.is_ours(begin)) {
      return cudaSuccess;
    }
    const std::size_t num_reports = here.reports.size();
    if (found != nullptr && found->kind == MemoryKind::Device) {
      here.report(ReportKind::HostAccess,
                  fmt::format("{} of byte {} of {}", call.name,
                              static_cast<std::ptrdiff_t>(begin - found->begin), to_string(*found)),
                  call);
    } else {
      here.check_access({data, nbytes}, is_write, here.add_host_accessor(call, call.name));
      here.loudly_touch({{data, nbytes}}, is_write);
    }
    clean = here.reports.size() == num_reports;
    return cudaSuccess;
  });
  return clean;
}

void name_stream(cudaStream_t handle, std::string name) {
  cuda_query("name_stream", [&](Machine& here, Call& call) {
    if (Stream* stream = here.find_stream(handle, call)) {
      stream->name = fmt::format("stream {} '{}'", stream->number, name);
      stream->label = fmt::format("'{}'", name);
    }
    return cudaSuccess;
  });
}

void name_memory(const void* data, std::string name) {
  cuda_query("name_memory", [&](Machine& here, Call&) {
    if (Allocation* found = here.memory.find(reinterpret_cast<Address>(data))) {
      found->name = std::move(name);
    }
    return cudaSuccess;
  });
}

int device_of(cudaStream_t handle) {
  int device = -1;
  cuda_query("device_of", [&](Machine& here, Call& call) {
    const Stream* stream = here.find_stream(handle, call);
    device = stream != nullptr ? stream->device : -1;
    return cudaSuccess;
  });
  return device;
}

Session::Session(const Options& options) : machine_(std::make_shared<Machine>(options)) {
  check(machine() == nullptr, "fake CUDA: another session is under way");
  check<ConfigError>(options.num_devices >= 1, "fake CUDA: there must be a device, got {}",
                     options.num_devices);
  machine_->handler = std::make_unique<HostAccessHandler>();
  machine() = machine_;
}

Session::~Session() {
  finish();
  std::string unseen;
  for (std::size_t i = num_seen_; i < machine_->reports.size(); ++i) {
    unseen += "fake CUDA: " + describe(machine_->reports[i]) + "\n";
  }
  // A test that fails already need not look at reports.
  if (!unseen.empty() && std::uncaught_exceptions() == 0) {
    const auto& tell = machine_->options.unseen;
    tell ? tell(unseen) : print_and_abort(unseen);
  }
}

std::vector<Report> Session::reports() {
  const std::lock_guard lock(machine_->mutex);
  num_seen_ = machine_->reports.size();
  return machine_->reports;
}

void Session::finish() {
  if (machine() != machine_) {
    return;
  }
  machine_->stop_workers();
  {
    const std::lock_guard lock(machine_->mutex);
    if (!machine_->hung) {
      if (!machine_->has_workers()) {
        machine_->drain();
      }
      for (const Stream& stream : machine_->streams) {
        if (!stream.queue.empty()) {
          machine_->report(ReportKind::Hang, machine_->hang_text(), std::vector<Place>{});
          break;
        }
      }
    }
    report_leaks(*machine_);
  }
  machine().reset();
  machine_->handler.reset();
}

std::vector<std::string> Session::trace() const {
  const std::lock_guard lock(machine_->mutex);
  return machine_->trace;
}

std::vector<testing::VirtualOp> Session::virtual_ops() const {
  const std::lock_guard lock(machine_->mutex);
  return machine_->virtual_ops;
}

std::vector<OrderingCall> Session::ordering_calls() const {
  const std::lock_guard lock(machine_->mutex);
  return machine_->ordering_calls;
}

std::uint64_t Session::num_ordering_calls(int device) const {
  const std::lock_guard lock(machine_->mutex);
  return static_cast<std::uint64_t>(
      std::ranges::count(machine_->ordering_calls, device, &OrderingCall::device));
}

std::vector<std::vector<std::uint32_t>> Session::orders() const {
  const std::lock_guard lock(machine_->mutex);
  std::vector<std::vector<std::uint32_t>> rows;
  for (const Accessor& accessor : machine_->accessors) {
    if (accessor.clock.size() == 0) {
      continue;
    }
    auto& row = rows.emplace_back(1, static_cast<std::uint32_t>(accessor.component));
    for (const Stream& stream : machine_->streams) {
      row.push_back(accessor.clock.at(stream.component));
    }
  }
  return rows;
}

std::uint64_t Session::num_mallocs() const {
  return machine_->num_mallocs;
}

std::uint64_t Session::num_host_mallocs() const {
  return machine_->num_host_mallocs;
}

std::uint64_t Session::num_ops_run() const {
  return machine_->num_ops_run;
}

std::size_t Session::device_bytes(int device) const {
  return machine_->memory.total_bytes() - machine_->memory.free_bytes(device);
}

HostSchedule& Session::host_schedule(int num_threads) {
  check(!machine_->schedule, "fake CUDA: the session has its host schedule already");
  machine_->schedule = std::make_unique<RankSchedule>(*machine_, num_threads);
  return *machine_->schedule;
}

}  // namespace fsdptrain::fakecuda
