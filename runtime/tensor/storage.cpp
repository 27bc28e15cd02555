#include "runtime/tensor/storage.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain {

std::shared_ptr<Storage> Storage::allocate(Device device, std::size_t nbytes,
                                           MemoryCategory category) {
  std::shared_ptr<Storage> storage(new Storage(device, nbytes));
  storage->owns_bytes_ = true;
  storage->category_ = category;
  storage->restore();
  return storage;
}

std::shared_ptr<Storage> Storage::pinned(Device device, std::size_t nbytes,
                                         MemoryCategory category) {
  std::shared_ptr<Storage> storage(new Storage(Device::cpu(), nbytes));
  storage->owns_bytes_ = true;
  storage->category_ = category;
  if (device != Device::cpu()) {
    storage->pinned_for_ = device;
  }
  storage->restore();
  return storage;
}

std::shared_ptr<Storage> Storage::placed(Device device, std::size_t nbytes) {
  return std::shared_ptr<Storage>(new Storage(device, nbytes));
}

std::shared_ptr<Storage> Storage::holding(Device device, std::size_t nbytes,
                                          Allocation allocation) {
  std::shared_ptr<Storage> storage(new Storage(device, nbytes));
  storage->allocation_ = std::move(allocation);
  storage->data_ = storage->allocation_.data();
  storage->present_ = true;
  return storage;
}

std::byte* Storage::data() const {
  if (!present_) [[unlikely]] {
    fail<StorageError>("data: the storage {}of {} bytes is released",
                       name_.empty() ? "" : "of " + name_ + " ", nbytes_);
  }
  allocation_.note_use();
  return data_;
}

void Storage::note_use(const Stream& stream) const {
  if (device_.type == DeviceType::Cuda || pinned_for_) {
    allocation_.note_use(stream);
  }
}

Allocator& Storage::allocator() const {
  RankContext& context = current_context();
  return pinned_for_ ? context.device(*pinned_for_).pinned() : context.allocator(device_);
}

void Storage::set_name(std::string name) {
  name_ = std::move(name);
  allocation_.set_label(name_);
}

void Storage::release() {
  allocation_.reset();
  data_ = nullptr;
  present_ = false;
}

void Storage::restore() {
  check<StorageError>(owns_bytes_,
                      "restore: the storage {} has no bytes of its own, its owner "
                      "must give an address",
                      name_);
  if (!present_) {
    allocation_ = allocator().allocate(nbytes_, category_);
    if (!name_.empty()) {
      allocation_.set_label(name_);
    }
    data_ = allocation_.data();
    present_ = true;
  }
}

void Storage::restore(std::byte* address) {
  check<StorageError>(!owns_bytes_ && !allocation_,
                      "restore: the storage {} owns its bytes and takes no address", name_);
  check<StorageError>(address != nullptr || device_.type == DeviceType::Meta || nbytes_ == 0,
                      "restore: the storage {} needs an address on {}", name_, device_);
  data_ = address;
  present_ = true;
}

}  // namespace fsdptrain
