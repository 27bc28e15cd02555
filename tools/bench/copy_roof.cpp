#include "tools/bench/copy_roof.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/rank_context.h"

namespace fsdptrain::tools {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};

void copy_block(void* context, std::int64_t index, int) {
  const Copy& copy = *static_cast<const Copy*>(context);
  const std::size_t begin = static_cast<std::size_t>(index) * kBlockBytes;
  std::memcpy(copy.to + begin, copy.from + begin, std::min(kBlockBytes, copy.bytes - begin));
}

Tensor buffer_of(double bytes) {
  const auto numel =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 2 / sizeof(float)));
  return Tensor::full({numel}, 1.0, DType::Float32, Device::cpu());
}

}  // namespace

CopyRoof::CopyRoof(double bytes) : from_(buffer_of(bytes)), to_(buffer_of(bytes)) {}

double CopyRoof::bytes() const {
  return 2.0 * static_cast<double>(from_.numel()) * sizeof(float);
}

void CopyRoof::run() {
  const auto bytes = static_cast<std::size_t>(from_.numel()) * sizeof(float);
  Copy copy{static_cast<std::byte*>(to_.view().data),
            static_cast<const std::byte*>(from_.view().data), bytes};
  current_context().pool().run(static_cast<std::int64_t>((bytes + kBlockBytes - 1) / kBlockBytes),
                               copy_block, &copy);
}

}  // namespace fsdptrain::tools
