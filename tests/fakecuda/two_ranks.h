#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakecuda/fixture.h"

// Two ranks that are threads, with a device each and all kinds of waits, for Mode::Threads.
namespace fsdptrain::fakecuda {

// A wait to leave out.
enum class Missing { Nothing, CopyBeforeKernel, KernelBeforeGather, HostBeforeRead };

class TwoRanks {
 public:
  static constexpr std::size_t kNumel = 1000;
  static constexpr std::size_t kNbytes = kNumel * sizeof(int);
  static constexpr int kNumSteps = 5;

  explicit TwoRanks(Missing missing) : missing_(missing) {
    for (int step = 0; step < kNumSteps; ++step) {
      gathers_.push_back(std::make_shared<Rendezvous>(Rendezvous::Options{
          .name = "gather", .participants = {"rank 0", "rank 1"}, .run = [this] { gather(); }}));
    }
  }

  // Whether each rank saw what the other one sent.
  bool run(Session& session) {
    HostSchedule& schedule = session.host_schedule(2);
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([this, rank, &schedule] {
        schedule.begin(static_cast<int>(rank));
        run_rank(rank);
        schedule.end(static_cast<int>(rank));
      });
    }
    threads.clear();
    return correct_[0] && correct_[1];
  }

 private:
  // Each rank's half of both.
  void gather() {
    for (std::size_t from = 0; from < 2; ++from) {
      for (int* to : gathered_) {
        std::copy(sent_[from], sent_[from] + kNumel, to + from * kNumel);
      }
    }
  }

  void run_rank(std::size_t rank) {
    cudaSetDevice(static_cast<int>(rank));
    Things things;
    const cudaStream_t copy = things.stream();
    const cudaStream_t compute = things.stream();
    const cudaStream_t comm = things.stream();
    const cudaEvent_t event = things.event();
    int* host = things.pinned<int>(2 * kNumel);
    sent_[rank] = things.device<int>(kNumel);
    gathered_[rank] = things.device<int>(2 * kNumel);
    const auto wait = [&](cudaStream_t later, cudaStream_t earlier, Missing without) {
      if (without == Missing::Nothing || missing_ != without) {
        cudaEventRecord(event, earlier);
        cudaStreamWaitEvent(later, event, 0);
      }
    };
    correct_[rank] = true;
    for (const std::shared_ptr<Rendezvous>& gathering : gathers_) {
      std::iota(host, host + kNumel, static_cast<int>(rank));
      cudaMemcpyAsync(sent_[rank], host, kNbytes, cudaMemcpyHostToDevice, copy);
      wait(compute, copy, Missing::CopyBeforeKernel);
      add_one(compute, sent_[rank]);
      wait(comm, compute, Missing::KernelBeforeGather);
      OpSpec op{.name = "gather"};
      op.parts.push_back({.rendezvous = gathering,
                          .participant = rank,
                          .reads = {range(sent_[rank], kNumel)},
                          .writes = {range(gathered_[rank], 2 * kNumel)}});
      enqueue(comm, std::move(op));
      wait(copy, comm, Missing::Nothing);
      cudaMemcpyAsync(host, gathered_[rank], 2 * kNbytes, cudaMemcpyDeviceToHost, copy);
      if (missing_ != Missing::HostBeforeRead) {
        cudaStreamSynchronize(copy);
      }
      correct_[rank] = correct_[rank] && host[0] == 1 && host[kNumel] == 2;
    }
    things.destroy();
  }

  static void add_one(cudaStream_t stream, int* x) {
    enqueue(
        stream,
        {.name = "add_one", .reads = {range(x, kNumel)}, .writes = {range(x, kNumel)}, .run = [x] {
           for (std::size_t i = 0; i < kNumel; ++i) {
             ++x[i];
           }
         }});
  }

  const Missing missing_;
  std::vector<std::shared_ptr<Rendezvous>> gathers_;
  int* sent_[2] = {};
  int* gathered_[2] = {};
  bool correct_[2] = {};
};

}  // namespace fsdptrain::fakecuda
