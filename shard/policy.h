#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/nn/parameter.h"
#include "shard/layout.h"

namespace fsdptrain::shard {

// What is computed and sent in which dtype. Inputs and outputs are cast by fully_shard() only. What
// the optimizer keeps is neither's business.
struct MixedPrecisionPolicy {
  // Of gathered parameters, and so of compute; empty: the one that they are kept in.
  std::optional<DType> param_dtype = {};
  // Of gradients until they are reduced; empty: the one that parameters are kept in. Sums over
  // micro-batches are in that dtype, whatever this is.
  std::optional<DType> reduce_dtype = {};
  // Of the module's floating outputs; empty: as it computes them.
  std::optional<DType> output_dtype = {};
  // Floating inputs of the module come in param_dtype.
  bool cast_forward_inputs = true;
};

// The parameters of a group as its layout knows them. `dtype` is what is trained is kept in, and
// all that says nothing else: float32, or float64 for oracles. DTypeError for dtypes that cannot
// be; ConfigError naming a parameter that is trained and says something else.
std::vector<LayoutParameter> with_policy(std::span<const nn::Parameter> parameters, DType dtype,
                                         const MixedPrecisionPolicy& policy);

}  // namespace fsdptrain::shard
