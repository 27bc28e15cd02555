#include <Eigen/Core>
#include <cstddef>

#include "kernels/cpu/gemm_kernel.h"

// Compiled once, for the baseline: a template of a header library, compiled for two instruction
// sets, would have one name for the linker.
namespace fsdptrain::kernels::cpu {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ConstMap = Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

// Eigen cuts a product by the sizes of the caches, and the order of a sum follows from the cut:
// with those of this CPU, bits would depend on it. Here before any thread is.
const bool kCachesAreFixed = [] {
  Eigen::setCpuCacheSizes(std::ptrdiff_t{32} << 10, std::ptrdiff_t{512} << 10,
                          std::ptrdiff_t{4} << 20);
  return true;
}();

template <class T>
void multiply(T* c, std::int64_t c_stride, GemmOperand<T> a, GemmOperand<T> b, std::int64_t m,
              std::int64_t n, std::int64_t k, T beta) {
  Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>> out(
      c, m, n, Eigen::OuterStride<>(c_stride));
  if (beta == T(0)) {
    out.setZero();
  } else if (beta != T(1)) {
    out *= beta;
  }
  const auto map = [](GemmOperand<T> x, std::int64_t rows, std::int64_t columns) {
    return ConstMap<T>(x.data, x.transposed ? columns : rows, x.transposed ? rows : columns,
                       Eigen::OuterStride<>(x.stride));
  };
  const ConstMap<T> left = map(a, m, k);
  const ConstMap<T> right = map(b, k, n);
  if (a.transposed && b.transposed) {
    out.noalias() += left.transpose() * right.transpose();
  } else if (a.transposed) {
    out.noalias() += left.transpose() * right;
  } else if (b.transposed) {
    out.noalias() += left * right.transpose();
  } else {
    out.noalias() += left * right;
  }
}

}  // namespace

bool gemm_kernel(double* c, std::int64_t c_stride, GemmOperand<double> a, GemmOperand<double> b,
                 std::int64_t m, std::int64_t n, std::int64_t k, double beta) {
  multiply(c, c_stride, a, b, m, n, k, beta);
  return kCachesAreFixed;
}

#if defined(FSDPTRAIN_GEMM_EIGEN)
void prepare_gemm() {}

bool gemm_kernel(float* c, std::int64_t c_stride, GemmOperand<float> a, GemmOperand<float> b,
                 std::int64_t m, std::int64_t n, std::int64_t k, float beta) {
  multiply(c, c_stride, a, b, m, n, k, beta);
  return true;
}
#endif

}  // namespace fsdptrain::kernels::cpu
