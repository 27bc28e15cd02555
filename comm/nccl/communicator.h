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

  // Of nobody yet: one of the next two makes it one. What they leave behind when they fail is
  // ended by abort(), as all else.
  Communicator(HostWait wait, Options options);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Whoever has it has called destroy() or abort().
  ~Communicator() = default;

  // Meets all members, who have the same `id` of ncclGetUniqueId().
  void meet(const Members& members, const ncclUniqueId& id);
  // A further one of the members of `other`, who all ask for it. After a failure `other` may still
  // write here: it is aborted too.
  void split_from(Communicator& other);

  // Null before it is made and after its end.
  ncclComm_t handle() const { return comm_; }
  const Options& options() const { return options_; }

  // PeerError, CommError, DeviceError for what has gone wrong since the last call.
  void check() const;
  // Blocks until NCCL has taken in what it was told; TimeoutError naming `call`.
  void settle(std::string_view call) const;

  // Lets NCCL end it together with the other ranks, which is over when has_settled().
  void finalize();
  bool has_settled() const;
  // After that.
  void destroy() noexcept;
  // Ends what is under way, on this rank, whatever state it is in.
  void abort() noexcept;

 private:
  ncclConfig_t config() const;
  ncclResult_t async_error() const;

  HostWait wait_;
  Options options_;
  int rank_ = 0;
  ncclComm_t comm_ = nullptr;
};

}  // namespace fsdptrain::comm::nccl
