#include "comm/nccl/memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "comm/nccl/check.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::comm::nccl {
namespace {

// What one communicator knows of a block.
class Registration {
 public:
  Registration(const std::shared_ptr<Communicator>& communicator, void* data, std::size_t nbytes,
               bool is_symmetric)
      : communicator_(communicator) {
    const ncclComm_t comm = communicator->handle();
    if (is_symmetric) {
      check_result("ncclCommWindowRegister",
                   ncclCommWindowRegister(comm, data, nbytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
                   comm);
      communicator->settle("ncclCommWindowRegister");
    }
    // Machines that offer no windows give none, and take the block as any other.
    if (window_ == nullptr) {
      check_result("ncclCommRegister", ncclCommRegister(comm, data, nbytes, &handle_), comm);
      communicator->settle("ncclCommRegister");
    }
  }
  Registration(Registration&& other) noexcept
      : communicator_(std::move(other.communicator_)),
        window_(std::exchange(other.window_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  Registration& operator=(Registration&&) = delete;
  // A communicator that is gone has forgotten it.
  ~Registration() {
    const std::shared_ptr<Communicator> communicator = communicator_.lock();
    if (!communicator || communicator->handle() == nullptr) {
      return;
    }
    if (window_ != nullptr) {
      static_cast<void>(ncclCommWindowDeregister(communicator->handle(), window_));
    }
    if (handle_ != nullptr) {
      static_cast<void>(ncclCommDeregister(communicator->handle(), handle_));
    }
  }

 private:
  std::weak_ptr<Communicator> communicator_;
  ncclWindow_t window_ = nullptr;
  void* handle_ = nullptr;
};

// The block, freed when nothing uses it.
class Block {
 public:
  Block(std::size_t nbytes, std::vector<Stream> users) : users_(std::move(users)) {
    check_result(fmt::format("ncclMemAlloc of {} bytes", nbytes), ncclMemAlloc(&data_, nbytes));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    try {
      for (const Stream& stream : users_) {
        stream.synchronize();
      }
    } catch (const Error& error) {
      log_warning("NCCL: memory is freed on a device that has failed: {}", error.what());
    }
    registrations_.clear();
    static_cast<void>(ncclMemFree(data_));
  }

  void add(const std::shared_ptr<Communicator>& communicator, std::size_t nbytes,
           bool is_symmetric) {
    registrations_.emplace_back(communicator, data_, nbytes, is_symmetric);
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::vector<Stream> users_;
  void* data_ = nullptr;
  std::vector<Registration> registrations_;
};

}  // namespace

std::shared_ptr<Storage> allocate_registered(
    const std::vector<std::shared_ptr<Communicator>>& communicators, std::vector<Stream> users,
    const MemoryOptions& options) {
  // Windows are of whole pages; also what has no bytes has an address.
  constexpr std::size_t kPage = NCCL_WIN_REQUIRED_ALIGNMENT;
  const std::size_t nbytes = std::max((options.nbytes + kPage - 1) / kPage, std::size_t{1}) * kPage;
  const auto block = std::make_shared<Block>(nbytes, std::move(users));
  for (const std::shared_ptr<Communicator>& communicator : communicators) {
    block->add(communicator, nbytes, options.is_symmetric);
  }
  std::shared_ptr<Storage> storage = Storage::placed(options.device, options.nbytes);
  storage->restore(block->data());
  Storage* const address = storage.get();
  return {address, [block, storage = std::move(storage)](Storage*) {}};
}

}  // namespace fsdptrain::comm::nccl
