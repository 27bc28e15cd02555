#include "comm/nccl/communicator.h"

#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "comm/nccl/check.h"

namespace fsdptrain::comm::nccl {

Communicator::Communicator(HostWait wait, Options options)
    : wait_(wait), options_(std::move(options)) {}

void Communicator::meet(const Members& members, const ncclUniqueId& id) {
  rank_ = members.rank;
  ncclConfig_t wanted = config();
  check_result("ncclCommInitRankConfig",
               ncclCommInitRankConfig(&comm_, members.size(), id, members.rank, &wanted), comm_);
  settle("ncclCommInitRankConfig");
}

void Communicator::split_from(Communicator& other) {
  rank_ = other.rank_;
  ncclConfig_t wanted = config();
  // The handle comes when the other one is no longer busy with it.
  check_result("ncclCommSplit", ncclCommSplit(other.comm_, 0, rank_, &comm_, &wanted), other.comm_);
  other.settle("ncclCommSplit");
  settle("ncclCommSplit");
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

void Communicator::check() const {
  if (comm_ != nullptr) {
    check_result(fmt::format("communicator '{}'", options_.name), async_error(), comm_);
  }
}

void Communicator::settle(std::string_view call) const {
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

void Communicator::finalize() {
  check_result(fmt::format("ncclCommFinalize of communicator '{}'", options_.name),
               ncclCommFinalize(comm_), comm_);
}

bool Communicator::has_settled() const {
  return async_error() != ncclInProgress;
}

void Communicator::destroy() noexcept {
  static_cast<void>(ncclCommDestroy(std::exchange(comm_, nullptr)));
}

void Communicator::abort() noexcept {
  if (comm_ != nullptr) {
    static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
  }
}

}  // namespace fsdptrain::comm::nccl
