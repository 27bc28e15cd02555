#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/allocator.h"
#include "runtime/base/view.h"
#include "tools/bench/library_gemm.h"
#include "tools/config/config.h"

// The matrix products of one training step: 4 linears a layer and the head.
namespace fsdptrain::tools {

// What a product computes, and with it, where its operands lie: forward y = x W^T on top of the
// bias, the gradient of the input dx = dy W, that of the weight dW = dy^T x.
enum class ProductForm : std::uint8_t { Forward, InputGradient, WeightGradient };

struct Product {
  // That of block_linears(), "head" or, for the head's last tokens where they fill no chunk,
  // "head_tail".
  std::string name;
  ProductForm form = ProductForm::Forward;
  GemmShape shape;
  // How often a step multiplies so.
  std::int64_t count = 0;
  // The head's weight gradient is summed over chunks of tokens: its first product starts anew.
  double first_beta = 0;
  double beta = 0;

  bool is_head() const { return name == "head" || name == "head_tail"; }
  // Of all `count` products.
  double flops() const;
};

std::string name_of(ProductForm form);

// Of a step over `tokens` tokens, in its order, forms of one linear together.
std::vector<Product> step_products(const ModelConfig& model, std::int64_t tokens);

// Memory for the operands of products, filled with small numbers; what is read is never written.
// Weights and their gradients lie in arenas larger than caches and move on with every product,
// as those of layers do; activations stay where they are.
class ProductOperands {
 public:
  static constexpr std::int64_t kArenaFloats = 64 << 20;

  // Each arena has `arena_floats`, or what the largest weight takes.
  explicit ProductOperands(const std::vector<Product>& products,
                           std::int64_t arena_floats = kArenaFloats);

  struct Pointers {
    float* a;
    float* b;
    float* c;
  };
  // Where the next product of this kind has its operands.
  Pointers next(const Product& product);

 private:
  // Not that of the rank context, whose counters and cache are being measured.
  std::shared_ptr<Allocator> allocator_;
  // Both arenas have this many floats, and a common place in them.
  std::int64_t arena_floats_ = 0;
  std::int64_t offset_ = 0;
  Allocation weights_;
  Allocation gradients_;
  // The left operands, the right ones of weight gradients, and the results but for these.
  Allocation left_;
  Allocation right_;
  Allocation results_;
};

// The seconds of all of a step's products of one kind, by the library on threads of its own.
double run_library(const Product& product, ProductOperands& operands, int threads);
// The same by ours.
double run_ours(const Launch& launch, const Product& product, ProductOperands& operands);

}  // namespace fsdptrain::tools
