#include "comm/nccl/communicator.h"

#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "comm/nccl/check.h"

namespace fsdptrain::comm::nccl {
namespace {

// How long a rank that is at its end waits for the others to get there.
constexpr Nanoseconds kLongestGoodbye = std::chrono::seconds(5);

}  // namespace

Communicator::Communicator(const Members& members, const ncclUniqueId& id, HostWait wait,
                           Options options)
    : wait_(wait), options_(std::move(options)), rank_(members.rank) {
  ncclConfig_t wanted = config();
  try {
    check_result("ncclCommInitRankConfig",
                 ncclCommInitRankConfig(&comm_, members.size(), id, members.rank, &wanted), comm_);
    settle("ncclCommInitRankConfig");
  } catch (...) {
    abort();
    throw;
  }
}

Communicator::Communicator(Communicator& other, Options options)
    : wait_(other.wait_), options_(std::move(options)), rank_(other.rank_) {
  ncclConfig_t wanted = config();
  try {
    // The handle comes when the other one is no longer busy with it.
    check_result("ncclCommSplit", ncclCommSplit(other.comm_, 0, rank_, &comm_, &wanted),
                 other.comm_);
    other.settle("ncclCommSplit");
    settle("ncclCommSplit");
  } catch (...) {
    // NCCL writes the handle until the other one is at rest.
    other.abort();
    abort();
    throw;
  }
}

Communicator::~Communicator() {
  if (comm_ == nullptr) {
    return;
  }
  try {
    check_result("ncclCommFinalize", ncclCommFinalize(comm_), comm_);
    if (wait_.until([this] { return async_error() != ncclInProgress; },
                    std::min(options_.timeout, kLongestGoodbye)) &&
        async_error() == ncclSuccess) {
      static_cast<void>(ncclCommDestroy(std::exchange(comm_, nullptr)));
      return;
    }
  } catch (const Error&) {
    // Others are gone, and have said why.
    abort();
    return;
  }
  abort();
}

ncclConfig_t Communicator::config() const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = options_.name.c_str();
  return config;
}

ncclResult_t Communicator::async_error() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  return result == ncclSuccess ? state : result;
}

void Communicator::check() {
  if (comm_ != nullptr) {
    check_result(fmt::format("communicator '{}'", options_.name), async_error(), comm_);
  }
}

void Communicator::settle(std::string_view call) {
  ncclResult_t state = ncclInProgress;
  const bool is_settled = wait_.until(
      [&] {
        state = async_error();
        return state != ncclInProgress;
      },
      options_.timeout);
  fsdptrain::check<TimeoutError>(is_settled, "{}: communicator '{}' was not ready in {}", call,
                                 options_.name, to_string(options_.timeout));
  check_result(fmt::format("{} of communicator '{}'", call, options_.name), state, comm_);
}

void Communicator::abort() noexcept {
  if (comm_ != nullptr) {
    static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
  }
}

}  // namespace fsdptrain::comm::nccl
