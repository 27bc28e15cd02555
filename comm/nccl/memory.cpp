#include "comm/nccl/memory.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "comm/nccl/check.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::comm::nccl {

// What one communicator knows of a block.
class RegisteredMemory::Registration {
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

// One that nobody holds any more.
struct RegisteredMemory::Block {
  // Once the events have passed.
  void free() noexcept {
    registrations.clear();
    static_cast<void>(ncclMemFree(data));
  }
  void wait_and_free() noexcept {
    try {
      for (const Event& use : uses) {
        use.synchronize();
      }
      free();
    } catch (const Error& error) {
      log_warning("NCCL: memory is left to a device that has failed: {}", error.what());
    }
  }

  std::byte* data = nullptr;
  Nanoseconds timeout{};
  std::vector<Registration> registrations;
  std::vector<Event> uses;
};

// Of one block.
class RegisteredMemory::Source final : public BlockSource {
 public:
  Source(std::weak_ptr<RegisteredMemory> memory, Nanoseconds timeout)
      : memory_(std::move(memory)), timeout_(timeout) {}

  std::byte* allocate(std::size_t nbytes) override {
    // Windows are of whole pages; also what has no bytes has an address.
    constexpr std::size_t kPage = NCCL_WIN_REQUIRED_ALIGNMENT;
    nbytes_ = (nbytes + kPage - 1) / kPage * kPage;
    void* data = nullptr;
    const ncclResult_t result = ncclMemAlloc(&data, nbytes_);
    // NCCL has one result for all that CUDA refuses, and the reason as text only.
    if (result == ncclUnhandledCudaError &&
        std::string_view(ncclGetLastError(nullptr)).find("out of memory") != std::string::npos) {
      return nullptr;
    }
    check_result(fmt::format("ncclMemAlloc of {} bytes", nbytes_), result);
    return static_cast<std::byte*>(data);
  }

  void register_with(const std::shared_ptr<Communicator>& communicator, std::byte* data,
                     bool is_symmetric) {
    registrations_.emplace_back(communicator, data, nbytes_, is_symmetric);
  }

  void give_back(std::byte* data, std::vector<Event> uses) noexcept override {
    Block block{data, timeout_, std::move(registrations_), std::move(uses)};
    if (const auto memory = memory_.lock()) {
      memory->give_back(std::move(block));
    } else {
      block.wait_and_free();
    }
  }

 private:
  std::weak_ptr<RegisteredMemory> memory_;
  Nanoseconds timeout_;
  std::size_t nbytes_ = 0;
  std::vector<Registration> registrations_;
};

RegisteredMemory::RegisteredMemory(DeviceContext& device, HostWait wait)
    : device_(device), wait_(wait) {}

RegisteredMemory::~RegisteredMemory() = default;

std::shared_ptr<Storage> RegisteredMemory::allocate(const Communicators& communicators,
                                                    std::size_t nbytes, bool is_symmetric) {
  const auto source =
      std::make_shared<Source>(weak_from_this(), communicators.front()->options().timeout);
  Allocation allocation =
      device_.allocator().allocate_from(source, nbytes, MemoryCategory::Communication);
  for (const std::shared_ptr<Communicator>& communicator : communicators) {
    source->register_with(communicator, allocation.data(), is_symmetric);
  }
  return Storage::holding(device_.api()->device(), nbytes, std::move(allocation));
}

bool RegisteredMemory::passes(const Block& block) const noexcept {
  try {
    return wait_.until(
        [&] {
          return std::ranges::all_of(block.uses, [](const Event& use) { return use.has_passed(); });
        },
        block.timeout);
  } catch (const std::exception&) {
    // What is wrong is told to whoever calls next.
    return false;
  }
}

void RegisteredMemory::give_back(Block block) noexcept {
  if (std::uncaught_exceptions() == 0 && passes(block)) {
    block.free();
  } else {
    dropped_.push_back(std::move(block));
  }
}

void RegisteredMemory::end() noexcept {
  for (Block& block : dropped_) {
    block.wait_and_free();
  }
  dropped_.clear();
}

}  // namespace fsdptrain::comm::nccl
