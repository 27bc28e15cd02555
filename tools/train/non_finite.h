#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/autograd/value_watch.h"
#include "runtime/data/loader.h"
#include "runtime/tensor/tensor.h"
#include "tools/train/train_step.h"

namespace fsdptrain::tools {

// The values of a tensor, looked through in row-major order.
struct Scan {
  // Of the first value that is NaN or infinite; empty for a tensor of no dimensions.
  std::vector<std::int64_t> index;
  // That value; nothing if all are finite.
  std::optional<double> non_finite;
  // Of the finite ones; 0 where there are none.
  double largest_magnitude = 0;
};

// Any tensor, with any strides, on any device that has values.
Scan scan_values(const Tensor& values);

// The name of the first parameter with a value that is not finite; empty if there is none. The same
// on all ranks of the model; collective over them.
std::string non_finite_parameter(shard::ShardedModel& model);

// The first value of a step, in order of execution, that is not finite, and where it came about.
struct NonFinite {
  // What keys the step's random numbers: 0 is the first step.
  std::uint64_t step = 0;
  std::size_t micro_batch = 0;  // of the share that was looked through
  // The samples of the micro-batch, by global number.
  std::uint64_t first_sample = 0;
  std::int64_t num_samples = 0;
  // The rows of the micro-batch that hold such values, where the value has rows: [B, T, ...].
  std::vector<std::int64_t> rows;

  // As value_watch.h says.
  std::string module;
  std::string op;
  autograd::Direction direction = autograd::Direction::Forward;
  autograd::ValueRole role = autograd::ValueRole::Output;
  int input = -1;
  std::string parameter;

  double value = 0;  // NaN or infinite
  std::vector<std::int64_t> index;
  // The largest finite magnitude that the step had computed or read by then, in the same tensor
  // included: near the limit of the dtype it tells an overflow.
  double largest_before = 0;
};

// Runs the forward and backward of a share of a step again, with the same random numbers, and looks
// at every value. Nothing if all are finite this time. The step can update nothing afterwards. It
// must run before the parameters change.
std::optional<NonFinite> locate_non_finite(TrainStep& train_step, const TrainStep::Share& share,
                                           std::uint64_t step);

// "nan", "inf" or "-inf".
std::string_view kind_of(double non_finite);
// "forward", "recomputation" or "backward".
std::string_view name_of(autograd::Direction direction);
// What has the value: "output", "gradient of parameter h.0.ln_1.weight", ...
std::string value_name(const NonFinite& found);
// All of it in words. Steps are counted from 1, as in everything that a run prints; micro-batches,
// rows and indices from 0.
std::string describe(const NonFinite& found);

}  // namespace fsdptrain::tools
