// Runs every family of CPU kernels once on small sizes, in the variant that FSDPTRAIN_ISA names,
// and prints a line for each: "NAME DIGEST SUM SCALE" with a digest of the bits of all results,
// their weighted sum and the same sum of magnitudes; and "ulp NAME ERROR" with the largest error
// of a mathematical function. isa_test.py compares them between machines and variants.
#include <cmath>
#include <cstdint>
#include <exception>
#include <fmt/core.h>
#include <functional>
#include <string>
#include <vector>

#include "kernels/checksum.h"
#include "kernels/combine.h"
#include "kernels/copy_bytes.h"
#include "kernels/optimizer.h"
#include "runtime/autograd/engine.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/cast.h"
#include "runtime/ops/dropout.h"
#include "runtime/ops/embedding.h"
#include "runtime/ops/inplace.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "runtime/ops/loss.h"
#include "runtime/ops/matmul.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/rotary.h"
#include "runtime/ops/softmax.h"
#include "runtime/ops/view.h"
#include "tests/support/gpt2_run.h"
#include "tests/support/random_tensor.h"
#include "tests/support/ulp.h"

namespace fsdptrain {
namespace {

using testing::random_tensor;

using Tensors = std::vector<Tensor>;

void print(const std::string& name, const Tensors& results) {
  // FNV-1a over the bytes.
  std::uint64_t digest = 0xcbf29ce484222325u;
  double sum = 0;
  double scale = 0;
  for (const Tensor& result : results) {
    const Tensor dense = ops::contiguous(result);
    for (const std::byte byte : dense.bytes()) {
      digest = (digest ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
    }
    for (std::int64_t i = 0; i < dense.numel(); ++i) {
      const double weighted = dense.item(i) * static_cast<double>(1 + i % 3);
      sum += weighted;
      scale += std::abs(weighted);
    }
  }
  fmt::print("{} {:016x} {} {}\n", name, digest, sum, scale);
}

// Results of fn and the gradients of their weighted sum by every floating input.
Tensors with_gradients(Tensors inputs, const std::function<Tensor(const Tensors&)>& fn) {
  for (Tensor& input : inputs) {
    input.set_requires_grad(is_floating(input.dtype()));
  }
  const Tensor y = fn(inputs);
  autograd::backward(y, {.grad_output = random_tensor(y.shape(), 99, 1, y.dtype())});
  Tensors results{y.detach()};
  for (const Tensor& input : inputs) {
    if (input.requires_grad()) {
      results.push_back(input.grad());
    }
  }
  return results;
}

Tensor random_indices(const Shape& shape, std::uint64_t seed, std::int64_t size) {
  Tensor indices = Tensor::empty(shape, DType::Int64);
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const auto word = philox(static_cast<std::uint64_t>(i), 0, seed).word[0];
    indices.set_item(i, static_cast<double>(word % static_cast<std::uint32_t>(size)));
  }
  return indices;
}

template <class T>
void print_ulps(const std::string& dtype) {
  struct Function {
    const char* name;
    Tensor (*ours)(const Tensor&);
    long double (*exact)(long double);
    double range;
  };
  const Function functions[] = {
      {"exp", ops::exp, [](long double x) { return std::exp(x); }, 80},
      {"tanh", ops::tanh, [](long double x) { return std::tanh(x); }, 4},
      {"erf", ops::erf, [](long double x) { return std::erf(x); }, 3},
      {"log", [](const Tensor& x) { return ops::log(ops::square(x)); },
       [](long double x) { return std::log(static_cast<long double>(T(T(x) * T(x)))); }, 100},
  };
  for (const Function& function : functions) {
    const Tensor x = random_tensor({1003}, 1, function.range, kDTypeOf<T>);
    const Tensor y = function.ours(x);
    double worst = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      worst =
          std::max(worst, testing::ulp_error(static_cast<T>(y.item(i)),
                                             function.exact(static_cast<long double>(x.item(i)))));
    }
    fmt::print("ulp {}/{} {}\n", function.name, dtype, worst);
  }
}

void print_elementwise(const std::string& dtype_name, DType dtype) {
  const Tensor x = random_tensor({7, 143}, 2, 3, dtype);
  const Tensor y = random_tensor({7, 143}, 3, 3, dtype);
  print("activation/" + dtype_name, with_gradients({x}, [](const Tensors& in) {
          const Tensor smooth = ops::add(ops::tanh(in[0]), ops::erf(in[0]));
          const Tensor gelus =
              ops::add(ops::gelu(in[0], ops::GeluForm::Erf), ops::gelu(in[0], ops::GeluForm::Tanh));
          const Tensor silus = ops::silu_mul(in[0], ops::silu(in[0]));
          return ops::add(
              ops::add(smooth, ops::add(gelus, silus)),
              ops::add(ops::exp(in[0]), ops::log(ops::affine(ops::square(in[0]), 1, 0.1))));
        }));
  print("arithmetic/" + dtype_name, with_gradients({x, y}, [](const Tensors& in) {
          const Tensor positive = ops::affine(ops::square(in[1]), 1, 0.5);
          const Tensor roots = ops::multiply(ops::sqrt(positive), ops::rsqrt(positive));
          const Tensor rest = ops::subtract(ops::divide(in[0], positive), ops::negate(in[1]));
          return ops::add(ops::add(roots, rest),
                          ops::where(ops::less(in[0], in[1]), ops::maximum(in[0], in[1]),
                                     ops::minimum(in[0], in[1])));
        }));
  const Tensor average = ops::clone(x);
  ops::lerp_(average, y, 0.1);
  print("lerp/" + dtype_name, {average});
  // The strided loops.
  print("strided/" + dtype_name, {ops::multiply(ops::transpose(x, 0, 1), ops::transpose(y, 0, 1)),
                                  ops::exp(ops::transpose(x, 0, 1))});
  Tensors casts;
  for (const DType to : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                         DType::Int64, DType::Int32}) {
    casts.push_back(ops::cast(x, to));
  }
  print("copy/" + dtype_name, casts);
  print("dropout/" + dtype_name, {ops::dropout(x, 0.3, {5})});
}

void print_products(const std::string& dtype_name, DType dtype) {
  print("matmul/" + dtype_name,
        with_gradients({random_tensor({37, 53}, 4, 1, dtype), random_tensor({53, 41}, 5, 1, dtype)},
                       [](const Tensors& in) { return ops::matmul(in[0], in[1]); }));
  print("linear/" + dtype_name,
        with_gradients({random_tensor({2, 70, 33}, 6, 1, dtype),
                        random_tensor({90, 33}, 7, 1, dtype), random_tensor({90}, 8, 1, dtype)},
                       [](const Tensors& in) { return ops::linear(in[0], in[1], in[2]); }));
  // More than one block of queries and keys; heads that are padded.
  print("attention/" + dtype_name,
        with_gradients({random_tensor({1, 70, 2, 20}, 9, 1, dtype),
                        random_tensor({1, 75, 2, 20}, 10, 1, dtype),
                        random_tensor({1, 75, 2, 20}, 11, 1, dtype)},
                       [](const Tensors& in) { return ops::attention(in[0], in[1], in[2]).out; }));
  // Grouped heads, a window, and documents that end within blocks.
  Tensor documents = Tensor::zeros({1, 140}, DType::Int64);
  for (std::int64_t i = 0; i < 140; ++i) {
    documents.set_item(i, static_cast<double>(i / 50));
  }
  print("masked_attention/" + dtype_name,
        with_gradients({random_tensor({1, 140, 4, 12}, 26, 1, dtype),
                        random_tensor({1, 140, 2, 12}, 27, 1, dtype),
                        random_tensor({1, 140, 2, 12}, 28, 1, dtype)},
                       [&](const Tensors& in) {
                         return ops::attention(in[0], in[1], in[2],
                                               {.document_ids = documents, .window = 40})
                             .out;
                       }));
}

void print_rotary(const std::string& dtype_name, DType dtype) {
  print("rotary/" + dtype_name,
        with_gradients({random_tensor({2, 9, 3, 38}, 24, 1, dtype)}, [](const Tensors& in) {
          return ops::rotary(in[0], random_indices({2, 9}, 25, 1 << 24),
                             ops::rotary_frequencies(38, 10000));
        }));
}

void print_rows(const std::string& dtype_name, DType dtype) {
  // Rows of more than one block.
  const Tensor x = random_tensor({5, 1500}, 12, 4, dtype);
  print(
      "layer_norm/" + dtype_name,
      with_gradients({x, random_tensor({1500}, 13, 1, dtype), random_tensor({1500}, 14, 1, dtype)},
                     [](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], 1e-5); }));
  print("rms_norm/" + dtype_name,
        with_gradients({x, random_tensor({1500}, 13, 1, dtype)},
                       [](const Tensors& in) { return ops::rms_norm(in[0], in[1], 1e-5); }));
  print("softmax/" + dtype_name,
        with_gradients({x}, [](const Tensors& in) { return ops::softmax(in[0]); }));
  print("log_softmax/" + dtype_name,
        with_gradients({x}, [](const Tensors& in) { return ops::log_softmax(in[0]); }));
  const Tensor targets = random_indices({5}, 15, 1500);
  print("cross_entropy/" + dtype_name,
        with_gradients({x}, [&](const Tensors& in) { return ops::cross_entropy(in[0], targets); }));
  print("smoothed_cross_entropy/" + dtype_name, with_gradients({x}, [&](const Tensors& in) {
          return ops::cross_entropy(in[0], targets, {.label_smoothing = 0.1, .z_loss = 1e-3});
        }));
  print("linear_cross_entropy/" + dtype_name,
        with_gradients(
            {random_tensor({5, 24}, 16, 1, dtype), random_tensor({1500, 24}, 17, 1, dtype)},
            [&](const Tensors& in) { return ops::linear_cross_entropy(in[0], in[1], targets); }));
  const std::vector<int> rows{0};
  const std::vector<int> columns{1};
  print("reduction/" + dtype_name, {ops::sum(x), ops::sum(x, rows), ops::sum(x, columns),
                                    ops::max(x, 0), ops::max(x, 1), ops::argmax(x, 1)});
  print("embedding/" + dtype_name,
        with_gradients({random_tensor({11, 37}, 18, 1, dtype)}, [](const Tensors& in) {
          return ops::embedding(in[0], random_indices({40}, 19, 11));
        }));
  print("gather/" + dtype_name, with_gradients({x}, [](const Tensors& in) {
          return ops::gather(in[0], 1, random_indices({5, 60}, 20, 1500));
        }));
}

void print_optimizers(const std::string& dtype_name, DType dtype) {
  constexpr std::int64_t kCount = 1013;
  const Tensor parameters = random_tensor({kCount}, 21, 1, dtype);
  const Tensor gradients = random_tensor({kCount}, 22, 1, dtype);
  const Tensor first = random_tensor({kCount}, 23, 1, dtype);
  const Tensor second = ops::square(first);
  const Launch launch = parameters.launch();
  const kernels::AdamwSegment adamw[] = {{3, kCount, 0.999, 1e-2, 1.5}};
  kernels::adamw(launch, parameters.view(), gradients.view(), first.view(), second.view(), adamw,
                 {0.9, 0.95, 1e-8}, nullptr);
  const kernels::SgdSegment sgd[] = {{0, kCount - 5, 1e-2, 1e-3}};
  const View momentum = first.view();
  kernels::sgd(launch, parameters.view(), gradients.view(), &momentum, 0.9, sgd, nullptr);
  const Tensor squares = Tensor::zeros({1}, DType::Float64);
  const kernels::Range range[] = {{1, kCount}};
  kernels::add_sum_of_squares(launch, squares.view(), gradients.view(), range);
  print("optimizer/" + dtype_name, {parameters, first, second, squares});
}

void print_collectives(const std::string& dtype_name, DType dtype) {
  constexpr std::int64_t kCount = 1013;
  Tensors tensors;
  std::vector<const void*> parts;
  for (std::uint64_t i = 0; i < 7; ++i) {
    tensors.push_back(random_tensor({kCount}, 30 + i, 1, dtype));
    parts.push_back(tensors.back().view().data);
  }
  const Launch launch = tensors[0].launch();
  Tensors results;
  for (const kernels::CombineOptions& options :
       {kernels::CombineOptions{.factor = 0.7, .scale = 0.1},
        kernels::CombineOptions{.op = kernels::CombineOp::Min},
        kernels::CombineOptions{.op = kernels::CombineOp::Max}}) {
    results.push_back(Tensor::empty({kCount}, dtype));
    kernels::combine(launch, {results.back().view().data, dtype}, {parts, dtype, kCount}, options);
  }
  print("combine/" + dtype_name, results);
  const Tensor copied = Tensor::empty({kCount}, dtype);
  kernels::copy_bytes(launch, copied.view().data, parts[0],
                      kCount * static_cast<std::int64_t>(size_of(dtype)), kernels::Caching::Stream);
  print("copy_bytes/" + dtype_name, {copied});
}

// The two halves of a checksum, which doubles hold.
void print_checksum() {
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * i % 251);
  }
  const std::uint64_t checksum = kernels::checksum64(bytes);
  print("checksum/float64", {Tensor::of({static_cast<double>(checksum >> 32U),
                                         static_cast<double>(checksum & 0xffffffffu)},
                                        DType::Float64)});
}

void print_training_step(const std::string& dtype_name, DType dtype) {
  testing::Gpt2Run run(testing::tiny_gpt2(), Device::cpu(), dtype);
  const auto result = run.train(0, 2, 19);
  print("gpt2_step/" + dtype_name,
        {result.loss, result.grad_norm, run.sharded->chunks().front().parameters});
}

void print_all() {
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  print_ulps<float>("float32");
  print_ulps<double>("float64");
  print_checksum();
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
    const std::string name(name_of(dtype));
    print_elementwise(name, dtype);
    print_products(name, dtype);
    print_rotary(name, dtype);
    print_rows(name, dtype);
    print_collectives(name, dtype);
    if (dtype != DType::BFloat16) {
      print_optimizers(name, dtype);
    }
    if (dtype != DType::Float64) {
      print_training_step(name, dtype);
    }
  }
}

}  // namespace
}  // namespace fsdptrain

int main() {
  try {
    fsdptrain::print_all();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
