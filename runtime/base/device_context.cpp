#include "runtime/base/device_context.h"

#include <utility>

namespace fsdptrain {

DeviceContext::DeviceContext(std::shared_ptr<DeviceApi> api)
    : api_(std::move(api)),
      compute_(api_, "compute"),
      allocator_(Allocator::create(api_)),
      pinned_(Allocator::create(api_, MemoryKind::Pinned)) {
  allocator_->set_current_stream(compute_);
}

}  // namespace fsdptrain
