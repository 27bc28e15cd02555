#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "runtime/autograd/engine.h"
#include "runtime/nn/linear.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "shard/param_group.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/grad_check.h"
#include "tests/support/lone_group.h"

// One module on one rank and on several, for tests that compare the two.
namespace fsdptrain::testing {

// Two linears, 5 -> 7 -> 3, and what a group has to bear with: a parameter that is frozen, one that
// is unused, one without elements.
class Net final : public nn::Module {
 public:
  Net() {
    register_module("a", a);
    register_parameter("offset", offset, {.init = nn::Init::normal(0.5), .trainable = false});
    register_parameter("unused", unused, {.init = nn::Init::normal(0.1)});
    register_parameter("none", none, {});
    register_module("b", b);
  }

  nn::Linear a{{.in = 5, .out = 7, .standard_deviation = 0.5}};
  nn::Linear b{{.in = 7, .out = 3, .standard_deviation = 0.5}};
  Tensor offset = nn::unplaced_parameter({7});
  Tensor unused = nn::unplaced_parameter({11});
  Tensor none = nn::unplaced_parameter({0, 4});

 private:
  Tensor forward(const Tensor& x) override {
    return b(ops::add(ops::gelu(a(x), ops::GeluForm::Tanh), offset));
  }
};

// What rank `rank` computes from in step `step`.
inline Tensor batch_of(int rank, int step, DType dtype) {
  return random_tensor({4, 5}, static_cast<std::uint64_t>(1 + rank + 100 * step), 1.0, dtype);
}

struct NetLoss {
  Tensor operator()(Net& net, int rank, int step, DType dtype) const {
    const Tensor y = net(batch_of(rank, step, dtype));
    return ops::sum(ops::multiply(y, y));
  }
};

using Values = std::map<std::string, std::vector<double>>;

// a + b in the arithmetic of `dtype`.
inline std::vector<double> added(const std::vector<double>& a, const std::vector<double>& b,
                                 DType dtype) {
  std::vector<double> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum[i] = dtype == DType::Float64
                 ? a[i] + b[i]
                 : static_cast<double>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
  }
  return sum;
}

// Of what either has.
inline Values sum_of(Values a, const Values& b, DType dtype) {
  for (const auto& [name, values] : b) {
    a[name] = a.contains(name) ? added(a[name], values, dtype) : values;
  }
  return a;
}

// Adds over the tree of collectives.
inline Values tree_sum(const std::vector<Values>& parts, DType dtype) {
  if (parts.size() == 1) {
    return parts[0];
  }
  std::size_t half = 1;
  while (2 * half < parts.size()) {
    half *= 2;
  }
  const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(half);
  return sum_of(tree_sum({parts.begin(), middle}, dtype), tree_sum({middle, parts.end()}, dtype),
                dtype);
}

// The module on one rank that has all of it: what a step of several ranks must equal. `Loss` is
// called with a model, a rank, a step and the dtype of the compute.
template <class Model = Net, class Loss = NetLoss>
class Unsharded {
 public:
  template <class... Config>
  explicit Unsharded(const FlatParameters::Options& options, const Config&... config)
      : options_(options), model_(config...), owner_(model_, options) {}

  Model& model() { return model_; }

  FlatParameters& owner() { return owner_; }

  // The gradients of the batch that this rank has in a step; parameters without one are left out.
  Values gradients_of(int rank, int step) {
    owner_.zero_grad();
    autograd::backward(Loss{}(model_, rank, step, options_.compute_dtype.value_or(options_.dtype)));
    owner_.mark_active_segments();
    Values gradients;
    for (const nn::Segment& segment : owner_.chunks()[0].segments) {
      if (segment.active) {
        gradients[segment.name] = owner_.find(segment.name).gradient.to_vector();
      }
    }
    return gradients;
  }

  // Those of all ranks, added in the order of collectives on up to three ranks.
  Values sum_of_gradients(int num_ranks, int step) {
    Values sum = gradients_of(0, step);
    for (int rank = 1; rank < num_ranks; ++rank) {
      for (const auto& [name, gradient] : gradients_of(rank, step)) {
        sum[name] = added(sum[name], gradient, options_.dtype);
      }
    }
    return sum;
  }

  // Makes them the gradients of the parameters.
  void set_gradients(const Values& gradients) {
    for (const auto& [name, values] : gradients) {
      Tensor gradient = owner_.find(name).gradient;
      for (std::size_t i = 0; i < values.size(); ++i) {
        gradient.set_item(static_cast<std::int64_t>(i), values[i]);
      }
    }
  }

  Values values() {
    Values values;
    for (const auto& named : owner_.named()) {
      values[named.name] = named.values.to_vector();
    }
    return values;
  }

 private:
  FlatParameters::Options options_;
  Model model_;
  FlatParameters owner_;
};

// The sharded module of one rank.
template <class Model = Net, class Loss = NetLoss>
struct Sharded {
  template <class... Config>
  Sharded(comm::World& world, const shard::ParamGroup::Options& options, const Config&... config)
      : rank(world.rank()),
        compute(options.policy.param_dtype.value_or(options.dtype)),
        net(config...),
        lone(net, world.group(), options),
        group(lone.group) {}

  Tensor loss(int step) { return Loss{}(net, rank, step, compute); }

  int rank;
  DType compute;
  Model net;
  LoneGroup lone;
  shard::ParamGroup& group;
};

// How far the parts that a rank has are from the whole, of which what is missing counts as zero;
// NaN if one is NaN.
struct Difference {
  double largest = 0;
  // Of the elements that were compared.
  std::int64_t numel = 0;
};

enum class Of { Parameters, Gradients };

inline Difference difference_of(const shard::ParamGroup& group, int rank, Of of,
                                const Values& expected) {
  const std::span<const nn::Parameter> parameters = group.parameters();
  Difference found;
  for (const shard::FlatBuffer& buffer : group.buffers()) {
    const Tensor& chunk = of == Of::Parameters ? buffer.chunk() : buffer.gradients();
    if (!chunk.defined()) {
      continue;
    }
    for (const shard::LocalRange& part : buffer.layout().segments(rank)) {
      const auto whole = expected.find(parameters[part.parameter].name);
      for (std::int64_t i = 0; i < part.in_chunk.size(); ++i) {
        const auto element = static_cast<std::size_t>(part.in_parameter.begin + i);
        const double want = whole == expected.end() ? 0 : whole->second[element];
        const double off = std::abs(chunk.item(part.in_chunk.begin + i) - want);
        if (!(off <= found.largest)) {
          found.largest = off;
        }
        ++found.numel;
      }
    }
  }
  return found;
}

template <class Model, class Loss>
Difference difference(const Sharded<Model, Loss>& sharded, Of of, const Values& expected) {
  return difference_of(sharded.group, sharded.rank, of, expected);
}

// Runs `body` on 1, 2 and 3 ranks.
inline void on_ranks(const std::function<void(comm::World&)>& body) {
  for (const int num_ranks : {1, 2, 3}) {
    CAPTURE(num_ranks);
    comm::run_ranks({.num_ranks = num_ranks}, body);
  }
}

// Where one rank alone calls no collective.
inline void on_two_and_three(const std::function<void(comm::World&)>& body) {
  for (const int num_ranks : {2, 3}) {
    CAPTURE(num_ranks);
    comm::run_ranks({.num_ranks = num_ranks}, body);
  }
}

inline std::int64_t sum_over_ranks(comm::World& world, std::int64_t value) {
  const Tensor sum = Tensor::full({1}, static_cast<double>(value), DType::Int64);
  world.control().issue(comm::all_reduce(sum)).wait();
  return sum.values<std::int64_t>()[0];
}

}  // namespace fsdptrain::testing
