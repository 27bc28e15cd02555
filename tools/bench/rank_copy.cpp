#include "tools/bench/rank_copy.h"

#include <cstring>

#include "runtime/base/rank_context.h"
#include "tools/stopwatch.h"

namespace fsdptrain::tools {
namespace {

struct Parts {
  std::byte* to;
  const std::byte* from;
  std::size_t nbytes;
  std::size_t num_parts;
};

void copy_part(void* context, std::int64_t index, int /*thread*/) {
  const Parts& parts = *static_cast<const Parts*>(context);
  const auto part = static_cast<std::size_t>(index);
  const std::size_t begin = parts.nbytes * part / parts.num_parts;
  const std::size_t end = parts.nbytes * (part + 1) / parts.num_parts;
  std::memcpy(parts.to + begin, parts.from + begin, end - begin);
}

// Memory that was never written takes several times as long.
Tensor written(std::int64_t nbytes) {
  return Tensor::full({nbytes / 4}, 1.0, DType::Float32, Device::cpu());
}

}  // namespace

RankCopy::RankCopy(std::int64_t nbytes) : from_(written(nbytes)), to_(written(nbytes)) {}

double RankCopy::run() {
  ThreadPool& pool = current_context().pool();
  Parts parts{static_cast<std::byte*>(to_.view().data),
              static_cast<const std::byte*>(from_.view().data),
              static_cast<std::size_t>(from_.numel()) * sizeof(float),
              static_cast<std::size_t>(pool.threads())};
  const Stopwatch stopwatch;
  pool.run(pool.threads(), copy_part, &parts);
  return stopwatch.seconds();
}

}  // namespace fsdptrain::tools
