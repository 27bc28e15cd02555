#include "kernels/cuda/stand_in.h"

#include <utility>

#include "runtime/base/allocator.h"
#include "runtime/base/error.h"
#include "runtime/base/thread_pool.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/kernels/launch_accesses.h"
#include "tests/fakecuda/kernels/op_report.h"
#include "tests/fakecuda/kernels/thread_watch.h"
#include "tests/fakecuda/kernels/view_bytes.h"

namespace fsdptrain::kernels::cuda {
namespace {

// On the host, with threads and memory of its own: the launching rank uses its own meanwhile.
void run_on_cpu(Isa isa, const std::function<void(const Launch&)>& kernel) {
  ThreadPool pool(1);
  const auto allocator = Allocator::create(make_host_api(Device::cpu()));
  Launch launch;
  launch.device = Device::cpu();
  launch.isa = isa;
  launch.pool = &pool;
  launch.allocator = allocator.get();
  kernel(launch);
}

// Kernels compiled with instrumentation are held to what they declare; others touch nothing that
// is seen here.
void run_checked(const fakecuda::OpSpec& declared, Isa isa,
                 const std::function<void(const Launch&)>& kernel) {
  fakecuda::LaunchAccesses accesses;
  {
    const fakecuda::ThreadWatch watch(accesses, __builtin_frame_address(0), nullptr, 0);
    run_on_cpu(isa, kernel);
  }
  fakecuda::report_undeclared(declared.name, "reads", accesses.read(), declared.reads);
  fakecuda::report_undeclared(declared.name, "writes", accesses.written(), declared.writes);
}

}  // namespace

void stand_in(const Launch& launch, const char* op, const Operands& operands,
              std::function<void(const Launch&)>&& kernel) {
  fakecuda::OpSpec spec{.name = op,
                        .reads = fakecuda::bytes_of(operands.reads),
                        .writes = fakecuda::bytes_of(operands.writes)};
  spec.run = [declared = spec, isa = launch.isa, kernel = std::move(kernel)] {
    run_checked(declared, isa, kernel);
  };
  const cudaError_t status =
      fakecuda::enqueue(static_cast<cudaStream_t>(launch.stream), std::move(spec));
  check<DeviceError>(status == cudaSuccess, "{}: the kernel was not launched: {}", op,
                     cudaGetErrorString(status));
}

}  // namespace fsdptrain::kernels::cuda
