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
      host_(make_host_api(Device::cpu())),
      meta_(make_host_api(Device::meta())) {}

DeviceContext& RankContext::device(Device device) {
  switch (device.type) {
    case DeviceType::Cpu:
      return host_;
    case DeviceType::Meta:
      return meta_;
    case DeviceType::Cuda:
      break;
  }
  std::unique_ptr<DeviceContext>& cuda = cuda_[device.index];
  if (!cuda) {
    cuda = std::make_unique<DeviceContext>(make_cuda_api(device.index));
  }
  return *cuda;
}

Launch RankContext::launch(Device device) {
  DeviceContext& on = this->device(device);
  on.api()->make_current();
  return {device, isa_, &pool_, &on.allocator(), on.current_stream().handle(), profile};
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

StreamGuard::StreamGuard(const Stream& stream)
    : device_(current_context().device(stream.device())), previous_(device_.current_stream()) {
  *device_.current_ = stream;
}

StreamGuard::~StreamGuard() {
  *device_.current_ = previous_;
}

ProfileGuard::ProfileGuard(KernelProfile& profile)
    : context_(current_context()), previous_(context_.profile) {
  context_.profile = &profile;
}

ProfileGuard::~ProfileGuard() {
  context_.profile = previous_;
}

}  // namespace fsdptrain
