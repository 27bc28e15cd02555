#pragma once

#include <functional>

#include "tests/fakecuda/machine.h"

// What all functions of the CUDA runtime have in common.
namespace fsdptrain::fakecuda {

// Of the calling thread, in the session under way.
struct ThreadState {
  std::uint64_t session_number = 0;
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  // Null: it never began as a rank.
  Host* rank = nullptr;
  // It runs an operation.
  bool is_in_op = false;
  // Of a stream's worker: the stream, and what it holds while it runs no operation.
  Stream* worker_stream = nullptr;
  std::unique_lock<std::mutex>* worker_lock = nullptr;
};

ThreadState& this_thread(const Machine& machine);

// What is built on the fake, such as a fake of NCCL, makes its calls so as well; inside of a body
// it uses Machine's functions and no other call.
using CallBody = std::function<cudaError_t(Machine&, Call&)>;

// Runs `body` as the CUDA function of this name: under the machine's lock, after what the seed runs
// first. Its error is the thread's last error unless it is cudaErrorNotReady. The sticky error of
// the thread's device comes instead of running it.
cudaError_t cuda_call(const char* name, const CallBody& body);

// The same for functions that work on a broken device too, and wait for nobody.
cudaError_t cuda_query(const char* name, const CallBody& body);

}  // namespace fsdptrain::fakecuda
