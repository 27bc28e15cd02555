#include "tools/bench/products.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/matmul.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "tools/bench/timing.h"
#include "tools/model/presets.h"
#include "tools/train/model_sizes.h"

namespace fsdptrain::tools {
namespace {

constexpr std::int64_t kAlignedFloats = kAlignment / sizeof(float);

// How the results of a linear's products go on top of what is there.
struct Betas {
  double forward = 0;
  double first_weight_gradient = 0;
  double weight_gradient = 0;
};

void add_linear(std::vector<Product>& products, const LinearSizes& linear, std::int64_t tokens,
                std::int64_t count, const Betas& betas) {
  products.push_back({std::string(linear.name),
                      ProductForm::Forward,
                      {tokens, linear.out, linear.in, false, true},
                      count,
                      betas.forward,
                      betas.forward});
  products.push_back({std::string(linear.name),
                      ProductForm::InputGradient,
                      {tokens, linear.in, linear.out, false, false},
                      count,
                      0,
                      0});
  products.push_back({std::string(linear.name),
                      ProductForm::WeightGradient,
                      {linear.out, linear.in, tokens, true, false},
                      count,
                      betas.first_weight_gradient,
                      betas.weight_gradient});
}

std::int64_t weight_numel(const Product& product) {
  const GemmShape& shape = product.shape;
  return product.form == ProductForm::WeightGradient ? shape.m * shape.n : shape.k * shape.n;
}

std::int64_t left_numel(const Product& product) {
  const GemmShape& shape = product.shape;
  return shape.m * shape.k;
}

// The right operand of a weight's gradient, or the result of the other forms.
std::int64_t right_numel(const Product& product) {
  const GemmShape& shape = product.shape;
  return product.form == ProductForm::WeightGradient ? shape.k * shape.n : shape.m * shape.n;
}

std::int64_t largest(const std::vector<Product>& products,
                     std::int64_t (*numel)(const Product& product)) {
  std::int64_t result = 0;
  for (const Product& product : products) {
    result = std::max(result, numel(product));
  }
  return result;
}

View vector_of(float* data, std::int64_t numel) {
  View view;
  view.data = data;
  view.dims = 1;
  view.sizes[0] = numel;
  view.strides[0] = 1;
  return view;
}

float* floats(const Allocation& memory) {
  return reinterpret_cast<float*>(memory.data());
}

Allocation allocate_filled(Allocator& allocator, std::int64_t numel) {
  Allocation memory =
      allocator.allocate(static_cast<std::size_t>(numel) * sizeof(float), MemoryCategory::Data);
  // Small, so that sums stay finite however often they are added to.
  kernels::fill(current_context().launch(Device::cpu()), vector_of(floats(memory), numel), 1e-3);
  return memory;
}

View matrix_of(float* data, std::int64_t rows, std::int64_t columns, bool transposed) {
  View view;
  view.data = data;
  view.dims = 2;
  view.sizes[0] = rows;
  view.sizes[1] = columns;
  view.strides[0] = transposed ? 1 : columns;
  view.strides[1] = transposed ? rows : 1;
  return view;
}

template <class Multiply>
double run_all(const Product& product, ProductOperands& operands, const Multiply& multiply) {
  const Stopwatch stopwatch;
  for (std::int64_t i = 0; i < product.count; ++i) {
    multiply(operands.next(product), i == 0 ? product.first_beta : product.beta);
  }
  return stopwatch.seconds();
}

}  // namespace

double Product::flops() const {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k) * static_cast<double>(count);
}

std::string name_of(ProductForm form) {
  switch (form) {
    case ProductForm::Forward:
      return "forward";
    case ProductForm::InputGradient:
      return "dx";
    case ProductForm::WeightGradient:
      return "dw";
  }
  __builtin_unreachable();
}

std::vector<Product> step_products(const ModelConfig& model, std::int64_t tokens) {
  const bool has_bias = model.bias && family_of(model.name) == "gpt2";
  std::vector<Product> products;
  for (const LinearSizes& linear : block_linears(model)) {
    add_linear(products, linear, tokens, model.num_layers, {.forward = has_bias ? 1.0 : 0.0});
  }
  const std::int64_t chunk = std::min(tokens, ops::kHeadChunk);
  add_linear(products, {"head", model.embed_dim, model.vocab_size}, chunk, tokens / chunk,
             {.weight_gradient = 1});
  if (const std::int64_t tail = tokens % chunk; tail > 0) {
    add_linear(products, {"head_tail", model.embed_dim, model.vocab_size}, tail, 1,
               {.first_weight_gradient = 1, .weight_gradient = 1});
  }
  return products;
}

ProductOperands::ProductOperands(const std::vector<Product>& products, std::int64_t arena_floats)
    : allocator_(Allocator::create(make_host_api(Device::cpu()))),
      arena_floats_(std::max(arena_floats, largest(products, weight_numel))),
      weights_(allocate_filled(*allocator_, arena_floats_)),
      gradients_(allocate_filled(*allocator_, arena_floats_)),
      left_(allocate_filled(*allocator_, largest(products, left_numel))),
      right_(allocate_filled(*allocator_, largest(products, right_numel))),
      results_(allocate_filled(*allocator_, largest(products, right_numel))) {}

ProductOperands::Pointers ProductOperands::next(const Product& product) {
  const std::int64_t numel = weight_numel(product);
  if (offset_ + numel > arena_floats_) {
    offset_ = 0;
  }
  const std::int64_t offset = offset_;
  offset_ += (numel + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  if (product.form == ProductForm::WeightGradient) {
    return {floats(left_), floats(right_), floats(gradients_) + offset};
  }
  return {floats(left_), floats(weights_) + offset, floats(results_)};
}

double run_library(const Product& product, ProductOperands& operands, int threads) {
  return run_all(product, operands, [&](const ProductOperands::Pointers& at, double beta) {
    library_gemm(threads, product.shape, at.a, at.b, static_cast<float>(beta), at.c);
  });
}

double run_ours(const Launch& launch, const Product& product, ProductOperands& operands) {
  const GemmShape& shape = product.shape;
  return run_all(product, operands, [&](const ProductOperands::Pointers& at, double beta) {
    kernels::matmul(launch, matrix_of(at.c, shape.m, shape.n, false),
                    matrix_of(at.a, shape.m, shape.k, shape.a_transposed),
                    matrix_of(at.b, shape.k, shape.n, shape.b_transposed), beta);
  });
}

}  // namespace fsdptrain::tools
