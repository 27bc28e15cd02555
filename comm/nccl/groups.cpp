#include "comm/nccl/groups.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <span>
#include <utility>

#include "comm/error.h"
#include "comm/nccl/check.h"

namespace fsdptrain::comm::nccl {
namespace {

// How long a rank that is at its end waits for the others to get there.
constexpr Nanoseconds kLongestGoodbye = std::chrono::seconds(5);

// Of one rank, which gives it to the other members by the channel.
ncclUniqueId shared_id(const Call& group, Channel& channel, Nanoseconds timeout) {
  ncclUniqueId id{};
  const Tensor bytes =
      Tensor::empty({sizeof id}, DType::UInt8, Device::cpu(), MemoryCategory::Communication);
  if (group.members->rank == 0) {
    check_result("ncclGetUniqueId", ncclGetUniqueId(&id));
    std::ranges::copy(std::as_bytes(std::span(id.internal)), bytes.mutable_bytes().begin());
  }
  std::vector<Call> calls{group};
  calls.front().operation = broadcast(bytes, 0);
  channel.issue(std::move(calls), timeout).wait();
  std::memcpy(&id, bytes.bytes().data(), sizeof id);
  return id;
}

}  // namespace

Groups::Groups(Channel& channel, HostWait wait, std::size_t lanes)
    : channel_(channel), wait_(wait), lanes_(lanes) {}

void Groups::create(const Call& call, Nanoseconds timeout) {
  channel_.issue({call}, timeout).wait();
  const std::string name(call.frame.group_name.view());
  const bool is_shared = lanes_ == 1;
  const ncclUniqueId id = shared_id(call, channel_, timeout);
  Communicators& communicators = groups_[call.frame.group_hash];
  // Known before it is made: an abort ends also what has half begun.
  const auto add = [&](const std::string& of) -> Communicator& {
    communicators.push_back(std::make_shared<Communicator>(
        wait_, Communicator::Options{.name = of, .timeout = timeout}));
    return *communicators.back();
  };
  add(is_shared ? name : name + "/gather").meet(*call.members, id);
  if (!is_shared) {
    add(name + "/reduce").split_from(*communicators.front());
  }
}

Communicators Groups::all() const {
  Communicators all;
  for (const auto& [hash, communicators] : groups_) {
    std::ranges::copy_if(communicators, std::back_inserter(all), [](const auto& communicator) {
      return communicator->handle() != nullptr;
    });
  }
  return all;
}

void Groups::check() const {
  for (const auto& [hash, communicators] : groups_) {
    for (const std::shared_ptr<Communicator>& communicator : communicators) {
      communicator->check();
    }
  }
}

bool Groups::finalize() {
  const Communicators open = all();
  Nanoseconds longest = kLongestGoodbye;
  for (const std::shared_ptr<Communicator>& communicator : open) {
    communicator->finalize();
    longest = std::min(longest, communicator->options().timeout);
  }
  const bool has_ended = wait_.until(
      [&] {
        return std::ranges::all_of(
            open, [](const auto& communicator) { return communicator->has_settled(); });
      },
      longest);
  check();
  return has_ended;
}

void Groups::end() noexcept {
  try {
    if (finalize()) {
      for (const std::shared_ptr<Communicator>& communicator : all()) {
        communicator->destroy();
      }
    }
  } catch (const std::exception&) {
    // Others are gone, and have said why.
  }
  abort();
}

void Groups::abort() noexcept {
  static_cast<void>(ncclGroupStart());
  for (const auto& [hash, communicators] : groups_) {
    for (const std::shared_ptr<Communicator>& communicator : communicators) {
      communicator->abort();
    }
  }
  static_cast<void>(ncclGroupEnd());
}

}  // namespace fsdptrain::comm::nccl
