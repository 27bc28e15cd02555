#include "runtime/ops/view.h"

#include <algorithm>
#include <functional>

#include "kernels/copy.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/ops/reduction.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::record;
using autograd::record_view;

Tensor copy_of(const Tensor& x) {
  Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.launch(), copy.view(), x.view());
  return copy;
}

// The tensors as one, if they follow each other without gaps in one storage.
Tensor stacked_alias(std::span<const Tensor> tensors) {
  const Tensor& first = tensors.front();
  check<AutogradError>(first.is_contiguous(),
                       "stack_adjacent: the first tensor, of shape {} and strides {}, has gaps",
                       first.shape(), first.strides());
  Shape shape = first.shape();
  std::int64_t end = first.offset() + first.numel();
  for (const Tensor& tensor : tensors.subspan(1)) {
    check_same_dtype("stack_adjacent", first, tensor);
    Shape expected = first.shape();
    expected[0] = tensor.size(0);
    check<ShapeError>(tensor.shape() == expected,
                      "stack_adjacent: shapes {} and {} differ behind the first dimension",
                      first.shape(), tensor.shape());
    check<AutogradError>(
        tensor.storage() == first.storage() && tensor.offset() == end && tensor.is_contiguous(),
        "stack_adjacent: a tensor of shape {} does not follow the one before it in memory: "
        "register the parameters as adjacent",
        tensor.shape());
    shape[0] += tensor.size(0);
    end += tensor.numel();
  }
  return first.alias(shape, Strides::contiguous(shape), first.offset());
}

}  // namespace

Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  check_defined("reshape", x);
  return reshape(x, views::infer_shape(x, {sizes.begin(), sizes.size()}));
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", x);
  if (!views::can_reshape(x, shape)) {
    check<ShapeError>(x.numel() == shape.numel(),
                      "reshape: shape {} has not as many elements as {}", x.shape(), shape);
    return reshape(contiguous(x), shape);
  }
  return record_view(
      "reshape", x, [shape](const Tensor& t) { return views::reshape(t, shape); },
      [shape = x.shape()](const Tensor& dy, GradientSink&) -> Gradients {
        return {views::reshape(dense(dy), shape)};
      });
}

Tensor transpose(const Tensor& x, int dim_a, int dim_b) {
  check_defined("transpose", x);
  return record_view(
      "transpose", x, [=](const Tensor& t) { return views::transpose(t, dim_a, dim_b); },
      [=](const Tensor& dy, GradientSink&) -> Gradients {
        return {views::transpose(dy, dim_a, dim_b)};
      });
}

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  check_defined("narrow", x);
  return record_view(
      "narrow", x, [=](const Tensor& t) { return views::narrow(t, dim, start, length); },
      [=, shape = x.shape()](const Tensor& dy, GradientSink&) -> Gradients {
        const Tensor dx = Tensor::zeros(shape, dy.dtype(), dy.device());
        kernels::copy(dy.launch(), views::narrow(dx, dim, start, length).view(), dy.view());
        return {dx};
      });
}

Tensor unsqueeze(const Tensor& x, int dim) {
  check_defined("unsqueeze", x);
  return record_view(
      "unsqueeze", x, [dim](const Tensor& t) { return views::unsqueeze(t, dim); },
      [dim](const Tensor& dy, GradientSink&) -> Gradients { return {views::squeeze(dy, dim)}; });
}

Tensor squeeze(const Tensor& x, int dim) {
  check_defined("squeeze", x);
  return record_view(
      "squeeze", x, [dim](const Tensor& t) { return views::squeeze(t, dim); },
      [dim = normalize_dim("squeeze", dim, x.dims())](
          const Tensor& dy, GradientSink&) -> Gradients { return {views::unsqueeze(dy, dim)}; });
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined("expand", x);
  // Not a view of a gradient slot: several elements of the result share one of the slot.
  return record("expand", views::expand(x, shape), {x},
                [shape = x.shape()](const Tensor& dy, GradientSink&) -> Gradients {
                  return {sum_to_shape(dy, shape)};
                });
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", x);
  return x.is_contiguous() ? x : clone(x);
}

Tensor clone(const Tensor& x) {
  check_defined("clone", x);
  return record("clone", copy_of(x), {x},
                [](const Tensor& dy, GradientSink&) -> Gradients { return {dy}; });
}

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim) {
  check_defined("split", x);
  const int d = normalize_dim("split", dim, x.dims());
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    total += size;
  }
  check<ShapeError>(total == x.shape()[d], "split: the sizes add up to {} but dim {} of {} has {}",
                    total, d, x.shape(), x.shape()[d]);
  std::vector<Tensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(narrow(x, d, start, size));
    start += size;
  }
  return pieces;
}

Tensor cat(std::span<const Tensor> tensors, int dim) {
  check<ShapeError>(!tensors.empty(), "cat: needs at least one tensor");
  const Tensor& first = tensors.front();
  check_defined("cat", first);
  const int d = normalize_dim("cat", dim, first.dims());
  Shape shape = first.shape();
  shape[d] = 0;
  std::vector<std::int64_t> sizes;
  for (const Tensor& tensor : tensors) {
    check_same_dtype("cat", first, tensor);
    check_same_device("cat", first, tensor);
    Shape expected = first.shape();
    if (tensor.dims() == first.dims()) {
      expected[d] = tensor.shape()[d];
    }
    check<ShapeError>(tensor.shape() == expected, "cat: shapes {} and {} differ outside dim {}",
                      first.shape(), tensor.shape(), d);
    sizes.push_back(tensor.shape()[d]);
    shape[d] += tensor.shape()[d];
  }
  const Tensor joined = Tensor::empty(shape, first.dtype(), first.device());
  std::int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t size = tensor.shape()[d];
    kernels::copy(first.launch(), views::narrow(joined, d, start, size).view(), tensor.view());
    start += size;
  }
  return record("cat", joined, {tensors.begin(), tensors.end()},
                [sizes, d](const Tensor& dy, GradientSink& sink) -> Gradients {
                  Gradients gradients;
                  std::int64_t begin = 0;
                  for (std::size_t i = 0; i < sizes.size(); ++i) {
                    gradients.push_back(sink.wants(static_cast<int>(i))
                                            ? views::narrow(dy, d, begin, sizes[i])
                                            : Tensor());
                    begin += sizes[i];
                  }
                  return gradients;
                });
}

Tensor stack_adjacent(std::span<const Tensor> parameters) {
  for (const Tensor& parameter : parameters) {
    check_defined("stack_adjacent", parameter);
  }
  check<ShapeError>(!parameters.empty() && parameters.front().dims() > 0,
                    "stack_adjacent: needs at least one parameter of at least one dimension");
  Tensor stacked = stacked_alias(parameters);
  const std::vector<Tensor> inputs(parameters.begin(), parameters.end());
  if (!autograd::records(inputs)) {
    return stacked;
  }
  // A parameter itself and no view of one.
  const auto has_slot = [](const Tensor& parameter) {
    return parameter.requires_grad() && parameter.autograd_meta()->slot &&
           parameter.autograd_meta()->leaves.empty();
  };
  if (std::ranges::all_of(parameters, has_slot)) {
    auto meta = autograd::make_leaf(stacked);
    autograd::SlotView slot;
    std::vector<Tensor> destinations;
    for (const Tensor& parameter : parameters) {
      const auto& leaf = parameter.autograd_meta();
      meta->name += (meta->name.empty() ? "" : "+") + leaf->name;
      meta->owner = leaf->owner;
      meta->leaves.push_back(leaf);
      destinations.push_back(leaf->slot->destination);
      slot.slots.push_back(leaf->slot->slots.front());
    }
    slot.destination = stacked_alias(destinations);
    meta->slot = std::move(slot);
    stacked.set_autograd_meta(std::move(meta));
    return stacked;
  }
  std::vector<std::int64_t> sizes;
  for (const Tensor& parameter : parameters) {
    sizes.push_back(parameter.size(0));
  }
  return record("stack_adjacent", stacked, inputs,
                [sizes](const Tensor& dy, GradientSink&) -> Gradients {
                  Gradients gradients;
                  std::int64_t begin = 0;
                  for (const std::int64_t size : sizes) {
                    gradients.push_back(views::narrow(dy, 0, begin, size));
                    begin += size;
                  }
                  return gradients;
                });
}

}  // namespace fsdptrain::ops
