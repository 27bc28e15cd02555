#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nccl.h>

#include "kernels/combine.h"
#include "runtime/base/dtype.h"
#include "runtime/base/isa.h"
#include "tests/fakecuda/fakecuda.h"

namespace fsdptrain::fakecuda {

enum class Kind {
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Reduce,
  AlltoAll,
  Gather,
  Scatter,
  Send,
  Recv,
};
const char* name_of(Kind kind);

struct ReduceOp {
  std::string name;
  kernels::CombineOptions options = {};
  bool is_average = false;

  bool operator==(const ReduceOp& other) const {
    return name == other.name && options.factor == other.options.factor;
  }
};

// One call of one rank.
struct Request {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Kind kind = Kind::AllGather;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  std::optional<ReduceOp> op = {};
  // Of a transfer the other rank; -1 for none.
  int root = -1;
};

// "ncclReduce of 12 x ncclFloat32, sum, root 1"
std::string to_string(const Request& request);
std::size_t size_of(ncclDataType_t type);
// For types in which NCCL reduces.
DType dtype_of(ncclDataType_t type);

// What a call of one of `size` ranks reads and writes.
std::vector<Range> reads_of(const Request& request, int rank, int size);
std::vector<Range> writes_of(const Request& request, int rank, int size);
// What is wrong with how its buffers overlap; empty if nothing is.
std::string misplaced(const Request& request, int rank, int size);

// The calls of all ranks that are one operation, by rank; of a transfer the send and the receive.
using Requests = std::vector<std::optional<Request>>;
// Moves the bytes.
void carry_out(const Requests& requests, Isa isa);

// Ranks that come to one operation.
struct Meeting {
  std::shared_ptr<Rendezvous> rendezvous;
  std::shared_ptr<Requests> requests;
  // Who came first, and what his device had launched on each communicator before.
  int first = -1;
  std::map<int, std::uint64_t> launched_before = {};
  int num_came = 0;
  bool is_broken = false;
};

}  // namespace fsdptrain::fakecuda
