#include "runtime/base/memory_counters.h"

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"

namespace fsdptrain {

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::Parameter:
      return "parameter";
    case MemoryCategory::Gradient:
      return "gradient";
    case MemoryCategory::Optimizer:
      return "optimizer";
    case MemoryCategory::Activation:
      return "activation";
    case MemoryCategory::Workspace:
      return "workspace";
    case MemoryCategory::Data:
      return "data";
    case MemoryCategory::Communication:
      return "communication";
  }
  return "invalid category";
}

std::size_t size_class(std::size_t nbytes) {
  constexpr std::size_t kLargest = std::size_t{1} << 62;
  check<OutOfMemoryError>(nbytes <= kLargest, "allocate: {} bytes are more than {} can hold",
                          nbytes, "any machine");
  const std::size_t step =
      std::max(kAlignment, std::bit_floor(std::max<std::size_t>(nbytes, 1)) / 8);
  return std::max(kAlignment, (nbytes + step - 1) / step * step);
}

void MemoryCounters::add(std::int64_t nbytes, MemoryCategory category) {
  const auto index = static_cast<std::size_t>(category);
  live[index] += nbytes;
  peak[index] = std::max(peak[index], live[index]);
  live_total += nbytes;
  peak_total = std::max(peak_total, live_total);
}

void MemoryCounters::reset_peaks() {
  peak = live;
  peak_total = live_total;
}

}  // namespace fsdptrain
