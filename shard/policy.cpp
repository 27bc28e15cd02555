#include "shard/policy.h"

#include "runtime/base/error.h"

namespace fsdptrain::shard {
namespace {

BufferKey key_of(const nn::Parameter& parameter, DType dtype, const MixedPrecisionPolicy& policy) {
  const bool trainable = parameter.spec.trainable;
  BufferKey key;
  key.original = parameter.spec.dtype.value_or(dtype);
  check<ConfigError>(!trainable || key.original == dtype,
                     "param group: {} is trained and must be kept in {}, got {}: freeze it, or "
                     "choose a param_dtype instead",
                     parameter.name, dtype, key.original);
  key.gathered = policy.param_dtype.value_or(key.original);
  key.reduce = std::nullopt;
  if (trainable) {
    key.reduce = policy.reduce_dtype.value_or(key.original);
  }
  return key;
}

}  // namespace

std::vector<LayoutParameter> with_policy(std::span<const nn::Parameter> parameters, DType dtype,
                                         const MixedPrecisionPolicy& policy) {
  check<DTypeError>(dtype == DType::Float32 || dtype == DType::Float64,
                    "param group: trained parameters are kept in float32 or float64, got {}",
                    dtype);
  for (const auto& of_policy : {policy.param_dtype, policy.reduce_dtype, policy.output_dtype}) {
    check<DTypeError>(!of_policy || is_floating(*of_policy),
                      "param group: a policy has floating dtypes, got {}",
                      of_policy.value_or(dtype));
  }
  std::vector<LayoutParameter> all;
  for (const nn::Parameter& parameter : parameters) {
    all.push_back({.name = parameter.name,
                   .numel = parameter.tensor->numel(),
                   .key = key_of(parameter, dtype, policy)});
  }
  return all;
}

}  // namespace fsdptrain::shard
