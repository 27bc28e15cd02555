#include "tests/fakecuda/nccl/collective.h"

#include <cstring>
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/thread_pool.h"

namespace fsdptrain::fakecuda {
namespace {

using Bytes = std::vector<std::byte>;

std::size_t bytes_of(const Request& request) {
  return request.count * size_of(request.type);
}

const std::byte* sent(const Request& request, std::size_t part = 0) {
  return static_cast<const std::byte*>(request.send) + part * bytes_of(request);
}

std::byte* received(const Request& request, std::size_t part = 0) {
  return static_cast<std::byte*>(request.recv) + part * bytes_of(request);
}

void put(std::byte* to, const std::byte* from, std::size_t nbytes) {
  if (to != from) {
    std::memmove(to, from, nbytes);
  }
}

// The combination of part number `part` of what all ranks send.
Bytes combined(const Requests& requests, std::size_t part, Isa isa) {
  const Request& any = *requests.front();
  std::vector<const void*> parts;
  parts.reserve(requests.size());
  for (const auto& request : requests) {
    parts.push_back(sent(*request, part));
  }
  kernels::CombineOptions options = any.op->options;
  if (any.op->is_average) {
    options.scale = 1.0 / static_cast<double>(requests.size());
  }
  Bytes result(bytes_of(any));
  ThreadPool pool(1);
  const Launch launch{.device = Device::cpu(), .isa = isa, .pool = &pool};
  const DType dtype = dtype_of(any.type);
  kernels::combine(launch, {.data = result.data(), .dtype = dtype},
                   {.data = parts, .dtype = dtype, .numel = static_cast<std::int64_t>(any.count)},
                   options);
  return result;
}

void reduce_scatter(const Requests& requests, Isa isa) {
  std::vector<Bytes> results;
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    results.push_back(combined(requests, rank, isa));
  }
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    put(received(*requests[rank]), results[rank].data(), results[rank].size());
  }
}

void all_reduce(const Requests& requests, Isa isa) {
  const Bytes result = combined(requests, 0, isa);
  for (const auto& request : requests) {
    put(received(*request), result.data(), result.size());
  }
}

// Part `from` of what rank i gets is the part of rank `from` that is meant for i.
void all_to_all(const Requests& requests) {
  for (std::size_t to = 0; to < requests.size(); ++to) {
    for (std::size_t from = 0; from < requests.size(); ++from) {
      put(received(*requests[to], from), sent(*requests[from], to), bytes_of(*requests[from]));
    }
  }
}

void move_rooted(const Requests& requests) {
  const auto root = static_cast<std::size_t>(requests.front()->root);
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    const Request& request = *requests[rank];
    const std::size_t nbytes = bytes_of(request);
    if (request.kind == Kind::Broadcast) {
      put(received(request), sent(*requests[root]), nbytes);
    } else if (request.kind == Kind::Gather) {
      put(received(*requests[root], rank), sent(request), nbytes);
    } else {
      put(received(request), sent(*requests[root], rank), nbytes);
    }
  }
}

bool is_root(const Request& request, int rank) {
  return request.root == rank;
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::AllGather:
      return "ncclAllGather";
    case Kind::ReduceScatter:
      return "ncclReduceScatter";
    case Kind::AllReduce:
      return "ncclAllReduce";
    case Kind::Broadcast:
      return "ncclBroadcast";
    case Kind::Reduce:
      return "ncclReduce";
    case Kind::AlltoAll:
      return "ncclAlltoAll";
    case Kind::Gather:
      return "ncclGather";
    case Kind::Scatter:
      return "ncclScatter";
    case Kind::Send:
      return "ncclSend";
    case Kind::Recv:
      return "ncclRecv";
  }
  return "a call of no kind";
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclNumTypes:
      break;
  }
  fail("fake NCCL: {} is no type", static_cast<int>(type));
}

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return DType::UInt8;
    case ncclInt32:
      return DType::Int32;
    case ncclInt64:
      return DType::Int64;
    case ncclFloat16:
      return DType::Float16;
    case ncclBfloat16:
      return DType::BFloat16;
    case ncclFloat32:
      return DType::Float32;
    case ncclFloat64:
      return DType::Float64;
    case ncclInt8:
    case ncclUint32:
    case ncclUint64:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
    case ncclNumTypes:
      break;
  }
  fail("fake NCCL: it reduces in no type that the project has not, got {}", static_cast<int>(type));
}

std::string to_string(const Request& request) {
  std::string text = fmt::format("{} of {} x type {}", name_of(request.kind), request.count,
                                 static_cast<int>(request.type));
  if (request.op) {
    text += fmt::format(", {}", request.op->name);
    text += request.op->options.factor == 1
                ? ""
                : fmt::format(" with factor {}", request.op->options.factor);
  }
  if (request.root >= 0) {
    text += fmt::format(", root {}", request.root);
  }
  return text;
}

std::vector<Range> reads_of(const Request& request, int rank, int size) {
  const std::size_t nbytes = bytes_of(request);
  const std::size_t all = nbytes * static_cast<std::size_t>(size);
  switch (request.kind) {
    case Kind::AllGather:
    case Kind::AllReduce:
    case Kind::Reduce:
    case Kind::Gather:
    case Kind::Send:
      return {{request.send, nbytes}};
    case Kind::ReduceScatter:
    case Kind::AlltoAll:
      return {{request.send, all}};
    case Kind::Broadcast:
      return is_root(request, rank) ? std::vector<Range>{{request.send, nbytes}}
                                    : std::vector<Range>{};
    case Kind::Scatter:
      return is_root(request, rank) ? std::vector<Range>{{request.send, all}}
                                    : std::vector<Range>{};
    case Kind::Recv:
      return {};
  }
  return {};
}

std::vector<Range> writes_of(const Request& request, int rank, int size) {
  const std::size_t nbytes = bytes_of(request);
  const std::size_t all = nbytes * static_cast<std::size_t>(size);
  switch (request.kind) {
    case Kind::AllGather:
    case Kind::AlltoAll:
      return {{request.recv, all}};
    case Kind::ReduceScatter:
    case Kind::AllReduce:
    case Kind::Scatter:
    case Kind::Recv:
      return {{request.recv, nbytes}};
    case Kind::Broadcast:
      return is_root(request, rank) && request.recv == request.send
                 ? std::vector<Range>{}
                 : std::vector<Range>{{request.recv, nbytes}};
    case Kind::Reduce:
      return is_root(request, rank) ? std::vector<Range>{{request.recv, nbytes}}
                                    : std::vector<Range>{};
    case Kind::Gather:
      return is_root(request, rank) ? std::vector<Range>{{request.recv, all}}
                                    : std::vector<Range>{};
    case Kind::Send:
      return {};
  }
  return {};
}

std::string misplaced(const Request& request, int rank, int size) {
  const std::vector<Range> reads = reads_of(request, rank, size);
  const std::vector<Range> writes = writes_of(request, rank, size);
  if (reads.empty() || writes.empty()) {
    return "";
  }
  const auto begin = [](const Range& range) { return static_cast<const std::byte*>(range.data); };
  const Range& read = reads.front();
  const Range& write = writes.front();
  if (begin(read) + read.nbytes <= begin(write) || begin(write) + write.nbytes <= begin(read)) {
    return "";
  }
  const std::size_t place = static_cast<std::size_t>(rank) * bytes_of(request);
  bool is_in_place = begin(read) == begin(write);
  if (request.kind == Kind::AllGather || request.kind == Kind::Gather) {
    is_in_place = begin(read) == begin(write) + place;
  } else if (request.kind == Kind::ReduceScatter || request.kind == Kind::Scatter) {
    is_in_place = begin(write) == begin(read) + place;
  } else if (request.kind == Kind::AlltoAll) {
    is_in_place = false;
  }
  return is_in_place ? ""
                     : fmt::format(
                           "{} of rank {}: its buffers overlap, but not where NCCL takes "
                           "an operation for one in place",
                           to_string(request), rank);
}

void carry_out(const Requests& requests, Isa isa) {
  switch (requests.front()->kind) {
    case Kind::AllGather:
      for (const auto& request : requests) {
        for (std::size_t from = 0; from < requests.size(); ++from) {
          put(received(*request, from), sent(*requests[from]), bytes_of(*request));
        }
      }
      return;
    case Kind::ReduceScatter:
      return reduce_scatter(requests, isa);
    case Kind::AllReduce:
      return all_reduce(requests, isa);
    case Kind::Reduce: {
      const Bytes result = combined(requests, 0, isa);
      const auto root = static_cast<std::size_t>(requests.front()->root);
      return put(received(*requests[root]), result.data(), result.size());
    }
    case Kind::AlltoAll:
      return all_to_all(requests);
    case Kind::Broadcast:
    case Kind::Gather:
    case Kind::Scatter:
      return move_rooted(requests);
    case Kind::Send:
    case Kind::Recv:
      return put(received(*requests.back()), sent(*requests.front()), bytes_of(*requests.front()));
  }
}

}  // namespace fsdptrain::fakecuda
