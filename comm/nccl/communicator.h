#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <nccl.h>

#include "comm/carrier.h"
#include "comm/nccl/host_wait.h"

namespace fsdptrain::comm::nccl {

// One communicator of NCCL, in which no call blocks the host for longer than its timeout: NCCL
// works on in the background, and everything here looks after it. One thread.
class Communicator {
 public:
  struct Options {
    // What NCCL and errors call it.
    std::string name;
    Nanoseconds timeout{};
  };

  // Meets all members, who have the same `id` of ncclGetUniqueId().
  Communicator(const Members& members, const ncclUniqueId& id, HostWait wait, Options options);
  // A further one of the members of `other`, who all ask for it.
  Communicator(Communicator& other, Options options);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Lets NCCL end it together with the other ranks, for 5 s at most.
  ~Communicator();

  ncclComm_t handle() const { return comm_; }
  const std::string& name() const { return options_.name; }

  // PeerError, CommError, DeviceError for what has gone wrong since the last call.
  void check();
  // Blocks until NCCL has taken in what it was told; TimeoutError naming `call`.
  void settle(std::string_view call);
  // Ends what is under way, on this rank; nothing can be done with it afterwards.
  void abort() noexcept;

 private:
  ncclConfig_t config() const;
  ncclResult_t async_error() const;

  HostWait wait_;
  Options options_;
  int rank_ = 0;
  // Null once it was aborted.
  ncclComm_t comm_ = nullptr;
};

}  // namespace fsdptrain::comm::nccl
