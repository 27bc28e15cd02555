#pragma once

#include <cstdint>
#include <string>

#include <nccl.h>

// A NCCL that needs no GPU, for tests: the nccl* functions that the project uses, under NVIDIA's
// own header, over the fake CUDA runtime. Ranks are threads; each has a device of its own.
//
// A collective is one rendezvous of the streams of all ranks. Sums are added in the project's own
// order (kernels/combine.h), so that they are the bits of the CPU backends. Where the real library
// would hang or give garbage because ranks do not call the same, ReportKind::CollectiveMismatch
// says what each of them called, and nothing is moved. Communicators are non-blocking, and a call
// takes effect only while ncclCommGetAsyncError() is asked about it: what is ordered behind a call
// that has not settled is ordered behind nothing. An abort waits for all that runs on the device:
// one that leaves another communicator of the device with collectives under way is
// ReportKind::InvalidUse.
namespace fsdptrain::fakecuda {

// A planned failure of one rank: its collective number `number` on the communicator of this name,
// counted from 0, is not launched, and from then on ncclCommGetAsyncError() gives `result`. A late
// one shows only after the collective was launched like any other.
struct NcclFault {
  std::string communicator;
  int rank = 0;
  std::uint64_t number = 0;
  ncclResult_t result = ncclRemoteError;
  bool is_late = false;
  // Instead of a collective, the split that makes the communicator fails, on the parent.
  bool is_of_split = false;
};
// In the session under way.
void plan_nccl_fault(NcclFault fault);

// Of the session under way: those that were neither destroyed nor aborted, blocks of memory that
// are registered with one, and windows among these.
struct NcclUse {
  int num_communicators = 0;
  int num_registrations = 0;
  int num_windows = 0;
};
NcclUse nccl_use();

}  // namespace fsdptrain::fakecuda
