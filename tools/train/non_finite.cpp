#include "tools/train/non_finite.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <type_traits>
#include <utility>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/tensor/transfer.h"
#include "shard/parts.h"

namespace fsdptrain::tools {
namespace {

using autograd::Direction;
using autograd::ValueRole;
using autograd::WatchedValue;

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return to_float(value);
  }
}

// Calls visit(number, value) for every element, numbered in row-major order.
template <class Visit>
void for_each_value(const Tensor& values, const Visit& visit) {
  if (values.device() != Device::cpu()) {
    return for_each_value(to_device(values, Device::cpu()), visit);
  }
  const View view = values.view();
  const int outer_dims = std::max(view.dims - 1, 0);
  const std::int64_t width = view.dims == 0 ? 1 : view.sizes[outer_dims];
  const std::int64_t stride = view.dims == 0 ? 0 : view.strides[outer_dims];
  const std::int64_t rows = width == 0 ? 0 : values.numel() / width;
  dispatch_any(view.dtype, [&]<class T>() {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t offset = 0;
      std::int64_t left = row;
      for (int dim = outer_dims - 1; dim >= 0; --dim) {
        offset += left % view.sizes[dim] * view.strides[dim];
        left /= view.sizes[dim];
      }
      const T* const data = static_cast<const T*>(view.data) + offset;
      for (std::int64_t i = 0; i < width; ++i) {
        visit(row * width + i, as_double(data[i * stride]));
      }
    }
  });
}

std::vector<std::int64_t> index_of(std::int64_t number, const Shape& shape) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.dims()));
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    index[static_cast<std::size_t>(dim)] = number % shape[dim];
    number /= shape[dim];
  }
  return index;
}

// The rows of `batch` with values that are not finite, if `values` has one row per sample.
std::vector<std::int64_t> bad_rows(const WatchedValue& value, const data::Batch& batch) {
  const Shape& shape = value.values.shape();
  if (!value.parameter.empty() || shape.dims() < 2 || shape[0] != batch.batch ||
      shape[1] != batch.seq_len) {
    return {};
  }
  const std::int64_t row_size = shape.numel() / std::max<std::int64_t>(shape[0], 1);
  std::vector<std::int64_t> rows;
  for_each_value(value.values, [&](std::int64_t number, double element) {
    const std::int64_t row = number / row_size;
    if (!std::isfinite(element) && (rows.empty() || rows.back() != row)) {
      rows.push_back(row);
    }
  });
  return rows;
}

std::string list_of(const std::vector<std::int64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ", "));
}

}  // namespace

Scan scan_values(const Tensor& values) {
  Scan scan;
  for_each_value(values, [&](std::int64_t number, double value) {
    if (std::isfinite(value)) {
      scan.largest_magnitude = std::max(scan.largest_magnitude, std::abs(value));
    } else if (!scan.non_finite) {
      scan.non_finite = value;
      scan.index = index_of(number, values.shape());
    }
  });
  return scan;
}

std::string non_finite_parameter(shard::ShardedModel& model) {
  const std::vector<shard::ParameterPart> parts = shard::parts_of(model);
  const auto bad = std::ranges::find_if(parts, [](const shard::ParameterPart& part) {
    return scan_values(part.values()).non_finite.has_value();
  });
  const Tensor first = Tensor::full({1}, static_cast<double>(std::distance(parts.begin(), bad)),
                                    DType::Int64, model.ranks().device());
  if (model.ranks().size() > 1) {
    model.ranks().issue(comm::all_reduce(first, {.op = comm::ReduceOp::Min})).wait();
  }
  const auto index = static_cast<std::size_t>(first.item());
  return index < parts.size() ? parts[index].name : std::string();
}

std::optional<NonFinite> locate_non_finite(TrainStep& train_step, const TrainStep::Share& share,
                                           std::uint64_t step) {
  std::optional<NonFinite> found;
  std::size_t micro_batch = 0;
  double largest = 0;
  const auto look = [&](const WatchedValue& value) {
    if (found) {
      return;
    }
    Scan scan = scan_values(value.values);
    largest = std::max(largest, scan.largest_magnitude);
    if (!scan.non_finite) {
      return;
    }
    const data::Batch& batch = share.micro_batches[micro_batch];
    found = NonFinite{.step = step,
                      .micro_batch = micro_batch,
                      .first_sample = batch.first_sample,
                      .num_samples = batch.batch,
                      .rows = bad_rows(value, batch),
                      .module = std::string(value.module),
                      .op = std::string(value.op),
                      .direction = value.direction,
                      .role = value.role,
                      .input = value.input,
                      .parameter = std::string(value.parameter),
                      .value = *scan.non_finite,
                      .index = std::move(scan.index),
                      .largest_before = largest};
  };
  const autograd::WatchGuard watch(look);
  train_step.accumulate(share, step, [&](std::size_t index) { micro_batch = index; });
  train_step.discard();
  return found;
}

std::string_view kind_of(double non_finite) {
  return std::isnan(non_finite) ? "nan" : non_finite > 0 ? "inf" : "-inf";
}

std::string_view name_of(Direction direction) {
  switch (direction) {
    case Direction::Forward:
      return "forward";
    case Direction::Replay:
      return "recomputation";
    case Direction::Backward:
      return "backward";
  }
  __builtin_unreachable();
}

std::string value_name(const NonFinite& found) {
  std::string input = found.parameter.empty() ? fmt::format("input {}", found.input)
                                              : "parameter " + found.parameter;
  switch (found.role) {
    case ValueRole::Leaf:
      return input;
    case ValueRole::Output:
      return "output";
    case ValueRole::OutputGradient:
      return "gradient of the output";
    case ValueRole::InputGradient:
      return "gradient of " + input;
    case ValueRole::LeafGradient:
      return "sum of the gradients of parameter " + found.parameter;
  }
  __builtin_unreachable();
}

std::string describe(const NonFinite& found) {
  const auto samples = static_cast<std::uint64_t>(found.num_samples);
  const std::string where = found.op.empty() ? "" : fmt::format(" of \"{}\"", found.op);
  std::string text = fmt::format(
      "step {}, micro-batch {} (samples {}..{}), {}{}{}: {} has {} at [{}]", found.step + 1,
      found.micro_batch, found.first_sample, found.first_sample + samples - 1,
      name_of(found.direction), where, found.module.empty() ? "" : " in " + found.module,
      value_name(found), kind_of(found.value), list_of(found.index));
  if (!found.rows.empty()) {
    std::vector<std::int64_t> numbers = found.rows;
    for (std::int64_t& number : numbers) {
      number += static_cast<std::int64_t>(found.first_sample);
    }
    text += fmt::format(", in {} {}", numbers.size() == 1 ? "sample" : "samples", list_of(numbers));
  }
  return text +
         fmt::format("; the largest finite magnitude before it is {:.3g}", found.largest_before);
}

}  // namespace fsdptrain::tools
