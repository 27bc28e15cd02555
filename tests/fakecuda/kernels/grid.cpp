#include <cstddef>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/simt.h"
#include "runtime/base/error.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/kernels/op_report.h"
#include "tests/fakecuda/kernels/thread_order.h"
#include "tests/fakecuda/kernels/thread_watch.h"
#include "tests/fakecuda/machine.h"

// Kernels compiled as C++ as operations of the fake: one thread of the grid after the other, and
// then the machine is told what they touched.
namespace fsdptrain::kernels::cuda {
namespace {

using fakecuda::LaunchAccesses;
using fakecuda::ReportKind;
using fakecuda::ThreadWatch;

std::string name_of(std::uint32_t thread, bool wrote) {
  const char* const what = wrote ? "writes" : "reads";
  return thread == LaunchAccesses::kManyThreads ? "several threads read"
                                                : fmt::format("thread {} {}", thread, what);
}

void report_accesses(const Grid& grid, const LaunchAccesses& accesses, const ThreadWatch& watch) {
  if (accesses.race()) {
    const LaunchAccesses::Race& race = *accesses.race();
    fakecuda::report_of_op(
        ReportKind::UnorderedAccess,
        fmt::format("a race within a launch of '{}', {} and {}", grid.name,
                    name_of(race.first, race.first_wrote), name_of(race.second, race.second_wrote)),
        race.address);
  }
  if (watch.first_misaligned() != nullptr) {
    fakecuda::report_of_op(ReportKind::InvalidUse,
                           fmt::format("a misaligned access by '{}'", grid.name),
                           reinterpret_cast<std::uintptr_t>(watch.first_misaligned()));
  }
  for (const LaunchAccesses::Bytes& bytes : accesses.read()) {
    fakecuda::on_access(reinterpret_cast<const void*>(bytes.begin), bytes.nbytes, false);
  }
  for (const LaunchAccesses::Bytes& bytes : accesses.written()) {
    fakecuda::on_access(reinterpret_cast<const void*>(bytes.begin), bytes.nbytes, true);
  }
}

[[gnu::noinline]] void run_threads(const Grid& grid, const BoundKernel& kernel,
                                   ThreadWatch& watch) {
  const std::uint64_t seed = fakecuda::machine()->options.seed;
  const std::uint64_t launch = fakecuda::machine()->running_op;
  const fakecuda::ThreadOrder blocks(seed, launch, grid.blocks);
  const fakecuda::ThreadOrder threads(seed, launch, grid.block);
  blockDim = {static_cast<unsigned>(grid.block), 1, 1};
  for (std::int64_t i = 0; i < grid.blocks; ++i) {
    const std::int64_t block = blocks.at(i);
    blockIdx = {static_cast<unsigned>(block), 0, 0};
    for (std::int64_t j = 0; j < grid.block; ++j) {
      const std::int64_t thread = threads.at(j);
      threadIdx = {static_cast<unsigned>(thread), 0, 0};
      watch.begin_thread(static_cast<std::uint32_t>(block * grid.block + thread));
      kernel.run(kernel.arguments);
    }
  }
}

void run_checked(const Grid& grid, const BoundKernel& kernel) {
  LaunchAccesses accesses;
  ThreadWatch watch(accesses, __builtin_frame_address(0), kernel.arguments, kernel.nbytes);
  run_threads(grid, kernel, watch);
  report_accesses(grid, accesses, watch);
}

}  // namespace

void run_grid(const Grid& grid, const BoundKernel& kernel) {
  // Aligned as all memory of new is.
  static_assert(kParameterAlignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  const auto arguments = std::make_shared<std::vector<std::byte>>(kernel.nbytes);
  kernel.copy(arguments->data(), kernel.arguments);
  const auto run = [grid, kernel, arguments] {
    BoundKernel own = kernel;
    own.arguments = arguments->data();
    run_checked(grid, own);
  };
  const cudaError_t status =
      fakecuda::enqueue(static_cast<cudaStream_t>(grid.stream), {.name = grid.name, .run = run});
  check<DeviceError>(status == cudaSuccess, "{}: the kernel was not launched: {}", grid.name,
                     cudaGetErrorString(status));
}

}  // namespace fsdptrain::kernels::cuda
