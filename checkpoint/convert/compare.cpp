#include "checkpoint/convert/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <span>
#include <string_view>

#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

constexpr std::int64_t kPartElements = std::int64_t{1} << 20;

const SavedGroup& group_of(const Manifest& manifest, const SavedTensor& tensor) {
  return manifest.layout.groups[static_cast<std::size_t>(tensor.group)];
}

// Matches the planes of a tensor that both have.
class Planes {
 public:
  Planes(const Manifest& a, const Manifest& b, Comparable& result) : a_(a), b_(b), result_(result) {}

  void match(std::size_t tensor_a, std::size_t tensor_b) {
    const SavedTensor& in_a = a_.layout.tensors[tensor_a];
    const SavedTensor& in_b = b_.layout.tensors[tensor_b];
    const std::vector<SavedPlane>& planes_a = group_of(a_, in_a).planes;
    const std::vector<SavedPlane>& planes_b = group_of(b_, in_b).planes;
    for (std::size_t i = 0; i < planes_a.size(); ++i) {
      const auto found = std::find_if(planes_b.begin(), planes_b.end(), [&](const SavedPlane& plane) {
        return plane.name == planes_a[i].name;
      });
      if (found == planes_b.end()) {
        say("{}/{}: only in the first", planes_a[i].name, in_a.name);
      } else if (found->dtype != planes_a[i].dtype) {
        say("{}/{}: {} and {}", planes_a[i].name, in_a.name, planes_a[i].dtype, found->dtype);
      } else {
        result_.common.push_back(
            {tensor_a, tensor_b, i, static_cast<std::size_t>(found - planes_b.begin())});
      }
    }
    for (const SavedPlane& plane : planes_b) {
      if (std::none_of(planes_a.begin(), planes_a.end(),
                       [&](const SavedPlane& other) { return other.name == plane.name; })) {
        say("{}/{}: only in the second", plane.name, in_b.name);
      }
    }
  }

  template <class... Values>
  void say(fmt::format_string<Values...> format, Values&&... values) {
    result_.differences.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

 private:
  const Manifest& a_;
  const Manifest& b_;
  Comparable& result_;
};

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
void add_values(std::span<const std::byte> a, std::span<const std::byte> b, ValueDifference& sum) {
  for (std::size_t at = 0; at < a.size(); at += sizeof(T)) {
    T of_a;
    T of_b;
    std::memcpy(&of_a, a.data() + at, sizeof(T));
    std::memcpy(&of_b, b.data() + at, sizeof(T));
    const auto value = static_cast<double>(of_a);
    sum.max_value = std::max(sum.max_value, std::abs(value));
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(T)) != 0) {
      ++sum.num_different;
      const double difference = std::abs(value - static_cast<double>(of_b));
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
  Planes planes(a, b, result);
  std::map<std::string_view, std::size_t> in_b;
  for (std::size_t i = 0; i < b.layout.tensors.size(); ++i) {
    in_b[b.layout.tensors[i].name] = i;
  }
  for (std::size_t i = 0; i < a.layout.tensors.size(); ++i) {
    const SavedTensor& tensor = a.layout.tensors[i];
    const auto found = in_b.extract(std::string_view(tensor.name));
    if (!found) {
      planes.say("{}: only in the first", tensor.name);
      continue;
    }
    const SavedTensor& other = b.layout.tensors[found.mapped()];
    if (other.shape != tensor.shape) {
      planes.say("{}: {} and {}", tensor.name, tensor.shape, other.shape);
      continue;
    }
    if (other.step != tensor.step) {
      planes.say("{}: {} and {}", tensor.name, updates(tensor), updates(other));
    }
    planes.match(i, found.mapped());
  }
  for (const auto& [name, index] : in_b) {
    planes.say("{}: only in the second", name);
  }
  compare_objects(a, b, result.differences);
  return result;
}

ValueDifference compare_values(CheckpointReader& a, CheckpointReader& b, const Common& common,
                               const std::function<void(std::uint64_t nbytes)>& each) {
  const SavedTensor& tensor = a.manifest().layout.tensors[common.tensor_a];
  const SavedPlane& plane = group_of(a.manifest(), tensor).planes[common.plane_a];
  ValueDifference sum{.name = fmt::format("{}/{}", plane.name, tensor.name),
                      .numel = tensor.shape.numel()};
  const auto part_nbytes = static_cast<std::size_t>(std::min(sum.numel, kPartElements)) * size_of(plane.dtype);
  std::vector<std::byte> of_a(part_nbytes);
  std::vector<std::byte> of_b(part_nbytes);
  for (std::int64_t begin = 0; begin < sum.numel; begin += kPartElements) {
    const kernels::Range range{begin, std::min(begin + kPartElements, sum.numel)};
    const auto nbytes = static_cast<std::size_t>(range.size()) * size_of(plane.dtype);
    const std::span part_a = std::span(of_a).first(nbytes);
    const std::span part_b = std::span(of_b).first(nbytes);
    a.read(common.tensor_a, common.plane_a, range, part_a);
    b.read(common.tensor_b, common.plane_b, range, part_b);
    dispatch_any(plane.dtype, [&]<class T>() { add_values<T>(part_a, part_b, sum); });
    each(2 * nbytes);
  }
  return sum;
}

}  // namespace fsdptrain::checkpoint
