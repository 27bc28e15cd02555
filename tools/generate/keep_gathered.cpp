#include "tools/generate/keep_gathered.h"

#include <cstdint>

#include "runtime/base/log.h"
#include "tools/machine/host.h"

namespace fsdptrain::tools {
namespace {

// Of all parameters, gathered.
std::int64_t whole_nbytes(const shard::ShardedModel& model) {
  std::int64_t nbytes = 0;
  for (const auto& unit : model.units()) {
    for (const shard::FlatBuffer& buffer : unit->group().buffers()) {
      const shard::BufferLayout& layout = buffer.layout();
      nbytes += layout.numel() * static_cast<std::int64_t>(size_of(layout.key().gathered));
    }
  }
  return nbytes;
}

// What each rank of the host may have of its memory.
std::int64_t available_nbytes(comm::World& world) {
  const auto own = static_cast<double>(available_memory_bytes() / world.size());
  const Tensor least = Tensor::full({1}, own, DType::Int64);
  world.control().issue(comm::all_reduce(least, {.op = comm::ReduceOp::Min})).wait();
  return static_cast<std::int64_t>(least.item());
}

}  // namespace

std::unique_ptr<shard::GatheredScope> keep_gathered(shard::ShardedModel& model,
                                                    comm::World& world) {
  if (world.device() != Device::cpu()) {
    return nullptr;
  }
  const std::int64_t needed = whole_nbytes(model);
  const std::int64_t available = available_nbytes(world);
  if (needed <= available / 2) {
    return std::make_unique<shard::GatheredScope>(model);
  }
  if (world.rank() == 0) {
    log_warning(
        "generate: the whole model takes {} bytes a rank, and {} are available: parameters are "
        "gathered again for every token, which takes longer",
        needed, available);
  }
  return nullptr;
}

}  // namespace fsdptrain::tools
