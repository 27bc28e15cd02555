#pragma once

#include <optional>
#include <string>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::nn {

// How a parameter gets its first values: the same for any number of ranks, sharding and device,
// because every element is a pure function of (seed, parameter name, element index).
struct Init {
  enum class Kind { Constant, Normal };

  Kind kind = Kind::Constant;
  // The constant, or the standard deviation around 0.
  double value = 0;

  static Init constant(double value) { return {Kind::Constant, value}; }
  static Init normal(double standard_deviation) { return {Kind::Normal, standard_deviation}; }
};

struct ParameterSpec {
  Init init = {};
  // Whether an optimizer's weight decay applies.
  bool decay = true;
  bool trainable = true;
  // Factor on the learning rate.
  double lr_scale = 1;
  // That the owner keeps it in; empty: the owner's choice.
  std::optional<DType> dtype = std::nullopt;
};

// What a module holds before an owner places its parameter: a shape on meta,
// without bytes and without a count of them; reading it is a StorageError.
Tensor unplaced_parameter(const Shape& shape);
// Whether a parameter is as unplaced_parameter() made it.
bool is_unplaced(const Tensor& parameter);

// A parameter as its module registered it.
struct Parameter {
  std::string name;  // dotted path, such as "h.0.attn.c_attn.weight"
  Tensor* tensor = nullptr;
  ParameterSpec spec;
};

}  // namespace fsdptrain::nn
