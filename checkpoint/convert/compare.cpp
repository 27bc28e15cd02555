#include "checkpoint/convert/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <span>
#include <string_view>
#include <type_traits>

#include "checkpoint/convert/parts.h"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"

namespace fsdptrain::checkpoint {
namespace {

// Of a tensor that both have in one shape.
void match_planes(const Manifest& a, const SavedTensor& in_a, const Manifest& b,
                  const SavedTensor& in_b, Comparable& result) {
  const SavedGroup& group_a = group_of(a.layout, in_a);
  const SavedGroup& group_b = group_of(b.layout, in_b);
  for (const SavedPlane& plane : group_a.planes) {
    const SavedPlane* const other = find_plane(group_b, plane.name);
    if (other == nullptr) {
      result.differences.push_back(fmt::format("{}/{}: only in the first", plane.name, in_a.name));
    } else if (other->dtype != plane.dtype) {
      result.differences.push_back(
          fmt::format("{}/{}: {} and {}", plane.name, in_a.name, plane.dtype, other->dtype));
    } else {
      result.common.push_back({&in_a, &in_b, plane});
    }
  }
  for (const SavedPlane& plane : group_b.planes) {
    if (find_plane(group_a, plane.name) == nullptr) {
      result.differences.push_back(fmt::format("{}/{}: only in the second", plane.name, in_b.name));
    }
  }
}

void compare_objects(const Manifest& a, const Manifest& b, std::vector<std::string>& differences) {
  for (const auto& [name, object] : a.objects) {
    const auto found = b.objects.find(name);
    if (found == b.objects.end()) {
      differences.push_back(fmt::format("object {}: only in the first", name));
    } else if (found->second != object) {
      differences.push_back(fmt::format("object {}: differs", name));
    }
  }
  for (const auto& [name, object] : b.objects) {
    if (!a.objects.contains(name)) {
      differences.push_back(fmt::format("object {}: only in the second", name));
    }
  }
}

std::string updates(const SavedTensor& tensor) {
  return tensor.step ? fmt::format("updated {} times", *tensor.step) : "frozen";
}

template <class T>
double value_of(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(to_float(value));
  }
}

template <class T>
void add_values(std::span<const std::byte> a, std::span<const std::byte> b, ValueDifference& sum) {
  for (std::size_t at = 0; at < a.size(); at += sizeof(T)) {
    T of_a{};
    T of_b{};
    std::memcpy(&of_a, a.data() + at, sizeof(T));
    std::memcpy(&of_b, b.data() + at, sizeof(T));
    const double value = value_of(of_a);
    sum.max_value = std::max(sum.max_value, std::abs(value));
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(T)) != 0) {
      ++sum.num_different;
      const double difference = std::abs(value - value_of(of_b));
      // A NaN stays.
      sum.max_difference = difference > sum.max_difference || std::isnan(difference)
                               ? difference
                               : sum.max_difference;
    }
  }
}

}  // namespace

Comparable match(const Manifest& a, const Manifest& b) {
  Comparable result;
  std::map<std::string_view, const SavedTensor*> in_b;
  for (const SavedTensor& tensor : b.layout.tensors) {
    in_b[tensor.name] = &tensor;
  }
  for (const SavedTensor& tensor : a.layout.tensors) {
    const auto found = in_b.extract(std::string_view(tensor.name));
    if (!found) {
      result.differences.push_back(fmt::format("{}: only in the first", tensor.name));
      continue;
    }
    const SavedTensor& other = *found.mapped();
    if (other.shape != tensor.shape) {
      result.differences.push_back(
          fmt::format("{}: {} and {}", tensor.name, tensor.shape, other.shape));
      continue;
    }
    if (other.step != tensor.step) {
      result.differences.push_back(
          fmt::format("{}: {} and {}", tensor.name, updates(tensor), updates(other)));
    }
    match_planes(a, tensor, b, other, result);
  }
  for (const auto& [name, tensor] : in_b) {
    result.differences.push_back(fmt::format("{}: only in the second", name));
  }
  compare_objects(a, b, result.differences);
  return result;
}

ValueDifference compare_values(CheckpointReader& a, CheckpointReader& b, const Common& common,
                               const std::function<void(std::uint64_t nbytes)>& each) {
  const DType dtype = common.plane.dtype;
  ValueDifference sum{.name = fmt::format("{}/{}", common.plane.name, common.in_a->name),
                      .numel = common.in_a->shape.numel()};
  Parts of_a(a, *common.in_a, common.plane);
  Parts of_b(b, *common.in_b, common.plane);
  for (std::int64_t begin = 0; begin < sum.numel; begin += Parts::kElements) {
    const kernels::Range range{begin, std::min(begin + Parts::kElements, sum.numel)};
    const std::span<const std::byte> part_a = of_a.read(range);
    const std::span<const std::byte> part_b = of_b.read(range);
    dispatch_any(dtype, [&]<class T>() { add_values<T>(part_a, part_b, sum); });
    each(part_a.size() + part_b.size());
  }
  return sum;
}

}  // namespace fsdptrain::checkpoint
