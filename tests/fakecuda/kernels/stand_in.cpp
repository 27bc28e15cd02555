#include "kernels/cuda/stand_in.h"

#include <utility>

#include "runtime/base/allocator.h"
#include "runtime/base/error.h"
#include "runtime/base/thread_pool.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/kernels/view_bytes.h"

namespace fsdptrain::kernels::cuda {
namespace {

// On the host, with threads and memory of its own: the launching rank uses its own meanwhile.
void run_on_cpu(Isa isa, const std::function<void(const Launch&)>& kernel) {
  ThreadPool pool(1);
  const auto allocator = Allocator::create(Device::cpu());
  Launch launch;
  launch.device = Device::cpu();
  launch.isa = isa;
  launch.pool = &pool;
  launch.allocator = allocator.get();
  kernel(launch);
}

}  // namespace

void stand_in(const Launch& launch, const char* op, const Operands& operands,
              std::function<void(const Launch&)>&& kernel) {
  const cudaError_t status = fakecuda::enqueue(
      static_cast<cudaStream_t>(launch.stream),
      {.name = op,
       .reads = fakecuda::bytes_of(operands.reads),
       .writes = fakecuda::bytes_of(operands.writes),
       .run = [isa = launch.isa, kernel = std::move(kernel)] { run_on_cpu(isa, kernel); }});
  check<DeviceError>(status == cudaSuccess, "{}: the kernel was not launched: {}", op,
                     cudaGetErrorString(status));
}

}  // namespace fsdptrain::kernels::cuda
