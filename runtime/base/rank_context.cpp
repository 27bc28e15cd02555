#include "runtime/base/rank_context.h"

#include <sched.h>

#include "runtime/base/error.h"

namespace fsdptrain {
namespace {

// The binding of contexts to threads is the one piece of state outside them.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): see above.
thread_local RankContext* bound_context = nullptr;

int default_threads() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  return sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
}

}  // namespace

RankContext::RankContext(const Options& options)
    : isa_(options.isa ? *options.isa : select_isa()),
      pool_(options.threads == 0 ? default_threads() : options.threads),
      log_prefix_(options.log_prefix),
      host_(Allocator::create(Device::cpu())),
      meta_(Allocator::create(Device::meta())) {}

Allocator& RankContext::allocator(Device device) {
  switch (device.type) {
    case DeviceType::Cpu:
      return *host_;
    case DeviceType::Meta:
      return *meta_;
    case DeviceType::Cuda:
      break;
  }
  fail<DeviceError>("allocator: no memory on {} in this build", device);
}

Launch RankContext::launch(Device device) {
  return {device, isa_, &pool_, &allocator(device), nullptr};
}

RankContext& current_context() {
  check(bound_context != nullptr, "no rank context is bound to this thread: create a {}",
        "RankContext and a ContextGuard first");
  return *bound_context;
}

const std::string& bound_log_prefix() {
  static const std::string none;
  return bound_context != nullptr ? bound_context->log_prefix() : none;
}

ContextGuard::ContextGuard(RankContext& context) : previous_(bound_context) {
  bound_context = &context;
}

ContextGuard::~ContextGuard() {
  bound_context = previous_;
}

}  // namespace fsdptrain
