// Breaks one rule of memory, on purpose, inside a kernel: proof that the sanitizers see into the
// code that computes. `planted CASE`; a program that ends without a report has failed its test.
#include <cstdio>
#include <string>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/tensor.h"

using namespace fsdptrain;

namespace {

constexpr std::int64_t kRows = 96;

// Rows that all lie in the same memory: two threads write it at once.
void race_in_elementwise() {
  const Tensor in = Tensor::full({kRows, 16384}, 1);
  View out = Tensor::empty({1, 16384}).view();
  out.sizes[0] = kRows;
  out.strides[0] = 0;
  kernels::map(in.launch(), kernels::Exp{}, out, in.view());
}

void race_in_matmul() {
  const Tensor a = Tensor::full({kRows, 64, 64}, 1);
  View out = Tensor::empty({1, 64, 64}).view();
  out.sizes[0] = kRows;
  out.strides[0] = 0;
  kernels::matmul(a.launch(), out, a.view(), a.view(), 0);
}

// One element, or one row, more than the tensor has.
void overflow_in_elementwise() {
  const Tensor in = Tensor::full({1001}, 1);
  const Tensor small = Tensor::empty({1000});
  View out = small.view();
  out.sizes[0] = 1001;
  kernels::map(in.launch(), kernels::Exp{}, out, in.view());
}

void overflow_in_matmul() {
  const Tensor a = Tensor::full({65, 64}, 1);
  const Tensor b = Tensor::full({64, 64}, 1);
  const Tensor small = Tensor::empty({64, 64});
  View out = small.view();
  out.sizes[0] = 65;
  kernels::matmul(a.launch(), out, a.view(), b.view(), 0);
}

}  // namespace

int main(int argc, char** argv) {
  RankContext context({.threads = 2});
  const ContextGuard guard(context);
  const std::string wanted = argc == 2 ? argv[1] : "";
  if (wanted == "race_in_elementwise") {
    race_in_elementwise();
  } else if (wanted == "race_in_matmul") {
    race_in_matmul();
  } else if (wanted == "overflow_in_elementwise") {
    overflow_in_elementwise();
  } else if (wanted == "overflow_in_matmul") {
    overflow_in_matmul();
  } else {
    std::puts("usage: planted race_in_elementwise|race_in_matmul|overflow_in_...");
    return 2;
  }
  std::puts("no report");
  return 0;
}
