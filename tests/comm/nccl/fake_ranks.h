#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/nccl/connect.h"
#include "comm/run_ranks.h"
#include "comm/threads/thread_boards.h"
#include "comm/world.h"
#include "runtime/base/parse_number.h"
#include "runtime/tensor/transfer.h"
#include "tests/fakecuda/expect.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/nccl/fakenccl.h"

// Ranks that are threads, each with a fake GPU of its own, and one of which runs at a time.
namespace fsdptrain::testing {

inline constexpr std::uint64_t kNumOrders = 8;

class FakeRanks {
 public:
  explicit FakeRanks(int num_ranks, std::uint64_t seed, comm::World::Options options = {},
                     fakecuda::Faults faults = {}, bool learns_by_looking = true)
      : session_(fakecuda::checked({.seed = seed,
                                    .num_devices = num_ranks,
                                    .faults = std::move(faults),
                                    .learns_by_looking = learns_by_looking})),
        boards_(num_ranks),
        links_(static_cast<std::size_t>(num_ranks)) {
    // Between two tests there is one thread.
    comm::nccl::prepare_environment();
    ranks_.num_ranks = num_ranks;
    ranks_.world = std::move(options);
    ranks_.world.device = Device::cuda(0);
    ranks_.schedule = &session_.host_schedule(num_ranks);
    ranks_.connect = [this](int rank) {
      comm::Links links = boards_.connect(rank, false, ranks_.schedule);
      links_[static_cast<std::size_t>(rank)] = links.training.get();
      return links;
    };
  }
  FakeRanks(const FakeRanks&) = delete;
  FakeRanks& operator=(const FakeRanks&) = delete;
  ~FakeRanks() = default;

  fakecuda::Session& session() { return session_; }

  // How this rank sees the others; while the world of `rank` is there, in its thread.
  comm::Link& link(int rank) { return *links_.at(static_cast<std::size_t>(rank)); }

  // Once.
  void run(const std::function<void(comm::World&)>& body) { comm::run_ranks(ranks_, body); }
  std::vector<std::exception_ptr> try_run(const std::function<void(comm::World&)>& body) {
    return comm::try_ranks(ranks_, body);
  }

  // What is left after a failure is not what a test of failures is about.
  void ignore_rest() {
    session_.finish();
    static_cast<void>(session_.reports());
  }

  void expect_clean() {
    CHECK(fakecuda::nccl_use().num_communicators == 0);
    session_.finish();
    fakecuda::expect_no_reports(session_);
  }

 private:
  fakecuda::Session session_;
  comm::ThreadBoards boards_;
  std::vector<comm::Link*> links_;
  comm::ThreadRanks ranks_;
};

using comm::text_of;

template <class E>
bool is_a(const std::exception_ptr& error) {
  if (!error) {
    return false;
  }
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

// More than these by FAKECUDA_ORDERS in the environment, for a campaign.
inline std::uint64_t num_orders() {
  const char* const wanted = std::getenv("FAKECUDA_ORDERS");
  return wanted == nullptr ? kNumOrders : parse_number<std::uint64_t>(wanted).value_or(kNumOrders);
}

inline void in_all_orders(const std::function<void(std::uint64_t seed)>& body) {
  for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
    CAPTURE(seed);
    body(seed);
  }
}

inline Tensor ones(comm::World& world, std::int64_t numel) {
  return to_device(Tensor::full({numel}, 1), world.device());
}

// What the device does with memory: enough to be a user of it.
inline void touch(const char* name, const Tensor& written, const Tensor& read = {}) {
  fakecuda::OpSpec op{.name = name};
  const auto nbytes = static_cast<std::size_t>(written.numel()) * size_of(written.dtype());
  void* const to = written.view().data;
  op.writes.push_back({to, nbytes});
  if (read.defined()) {
    op.reads.push_back({read.view().data, nbytes});
  }
  op.run = [to, nbytes, from = read.defined() ? read.view().data : nullptr] {
    from == nullptr ? std::memset(to, 0, nbytes) : std::memmove(to, from, nbytes);
  };
  const auto stream = static_cast<cudaStream_t>(written.launch().stream);
  CHECK(fakecuda::enqueue(stream, std::move(op)) == cudaSuccess);
}

}  // namespace fsdptrain::testing
