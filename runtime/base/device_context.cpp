#include "runtime/base/device_context.h"

#include <utility>

namespace fsdptrain {

DeviceContext::DeviceContext(std::shared_ptr<DeviceApi> api)
    : api_(std::move(api)),
      compute_(api_, "compute"),
      current_(std::make_shared<Stream>(compute_)),
      allocator_(Allocator::create(api_, MemoryKind::Device, current_)),
      pinned_(Allocator::create(api_, MemoryKind::Pinned)) {}

}  // namespace fsdptrain
