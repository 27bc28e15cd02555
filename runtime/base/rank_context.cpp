#include "runtime/base/rank_context.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/processors.h"

namespace fsdptrain {
namespace {

// The binding of contexts to threads is the one piece of state outside them.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): see above.
thread_local RankContext* bound_context = nullptr;

Isa checked_isa(std::optional<Isa> wanted) {
  if (!wanted) {
    return select_isa();
  }
  check<ConfigError>(std::ranges::count(supported_isas(), *wanted) == 1,
                     "isa: this CPU cannot run {}", name_of(*wanted));
  return *wanted;
}

}  // namespace

RankContext::RankContext(const Options& options)
    : isa_(checked_isa(options.isa)),
      pool_(options.threads == 0 ? num_processors() : options.threads),
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
  return {device, isa_, &pool_, &allocator(device), nullptr, profile};
}

RankContext& current_context() {
  check(bound_context != nullptr,
        "no rank context is bound to this thread: create a RankContext and a ContextGuard first");
  return *bound_context;
}

const std::string& bound_log_prefix() {
  static const std::string none;
  return bound_context != nullptr ? bound_context->log_prefix() : none;
}

void RankContext::bind() {
  const std::thread::id self = std::this_thread::get_id();
  std::thread::id owner;
  if (!owner_.compare_exchange_strong(owner, self)) {
    check(owner == self, "ContextGuard: the rank context {}is bound on another thread",
          log_prefix_);
  }
  ++bindings_;
}

void RankContext::unbind() {
  if (--bindings_ == 0) {
    owner_.store(std::thread::id());
  }
}

ContextGuard::ContextGuard(RankContext& context) : context_(context), previous_(bound_context) {
  context.bind();
  bound_context = &context;
}

ContextGuard::~ContextGuard() {
  bound_context = previous_;
  context_.unbind();
}

ProfileGuard::ProfileGuard(KernelProfile& profile)
    : context_(current_context()), previous_(context_.profile) {
  context_.profile = &profile;
}

ProfileGuard::~ProfileGuard() {
  context_.profile = previous_;
}

}  // namespace fsdptrain
