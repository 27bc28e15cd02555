#include "runtime/base/cuda/checker.h"

#include <algorithm>

#include "tests/fakecuda/call.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/machine.h"

// What our own allocator tells of the blocks that it hands out.
namespace fsdptrain::fakecuda {

void Machine::mark(const Mark& mark, std::uint32_t accessor) {
  const auto begin = reinterpret_cast<Address>(mark.block.data);
  Allocation* const allocation = memory.find(begin);
  // Its redzones are no part of it: a block is.
  if (allocation == nullptr || allocation->freed || begin < allocation->begin ||
      mark.block.nbytes > allocation->end() - begin) {
    report(ReportKind::InvalidUse, "a block that is marked lies in no live allocation",
           {{"marked", accessors[accessor].site}});
    return;
  }
  const Accessor& who = accessors[accessor];
  const Shadow::Visitor visitor{
      .is_ordered =
          [&](std::uint32_t earlier) {
            return accessors[earlier].tick <= who.clock.at(accessors[earlier].component);
          },
      .conflict =
          [&](std::uint32_t earlier, bool earlier_wrote, std::size_t at) {
            report_conflict(accessor, true, earlier, earlier_wrote, *allocation, at);
          },
      .uninitialised = {}};
  allocation->shadow.mark(begin - allocation->begin, mark.block.nbytes, mark.in_use, accessor,
                          visitor);
}

namespace {

// Pinned memory has no stream: the host gives it out, and what it writes there goes unseen.
void mark_pinned(const Mark& mark) {
  if (mark.in_use > 0) {
    check_host_access(mark.block.data, mark.block.nbytes, Access::Write);
  }
}

}  // namespace
}  // namespace fsdptrain::fakecuda

namespace fsdptrain::cuda {

void mark_block(void* data, std::size_t nbytes, std::size_t block_bytes, void* stream) noexcept {
  const fakecuda::Mark mark{.block = {data, block_bytes}, .in_use = nbytes};
  try {
    if (stream == nullptr) {
      fakecuda::mark_pinned(mark);
      return;
    }
    // A launch is for the current device, and an allocator may give back on any.
    int current = 0;
    static_cast<void>(cudaGetDevice(&current));
    const auto handle = static_cast<cudaStream_t>(stream);
    static_cast<void>(cudaSetDevice(fakecuda::device_of(handle)));
    // A device that has failed has said so to others.
    static_cast<void>(
        fakecuda::enqueue(handle, {.name = nbytes > 0 ? "allocate" : "give back", .mark = mark}));
    static_cast<void>(cudaSetDevice(current));
  } catch (const fakecuda::HangError&) {
    // Every later call throws it again.
  }
}

void name_stream(void* stream, const std::string& name) {
  fakecuda::name_stream(static_cast<cudaStream_t>(stream), name);
}

}  // namespace fsdptrain::cuda
