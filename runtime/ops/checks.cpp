#include "runtime/ops/checks.h"

#include "runtime/base/error.h"

namespace fsdptrain::ops {

void check_defined(const char* op, const Tensor& x) {
  check<StorageError>(x.defined(), "{}: a tensor is undefined", op);
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, a);
  check_defined(op, b);
  check<DTypeError>(a.dtype() == b.dtype(), "{}: dtypes {} and {} differ", op, a.dtype(),
                    b.dtype());
}

void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, a);
  check_defined(op, b);
  check<DeviceError>(a.device() == b.device(), "{}: devices {} and {} differ", op, a.device(),
                     b.device());
}

void check_floating(const char* op, const Tensor& x) {
  check_defined(op, x);
  check<DTypeError>(is_floating(x.dtype()) && x.dtype() != DType::Float16,
                    "{}: needs float32, float64 or bfloat16, got {}", op, x.dtype());
}

void check_numeric(const char* op, const Tensor& x) {
  check_defined(op, x);
  check<DTypeError>(x.dtype() != DType::Float16,
                    "{}: float16 is for storage: cast to another dtype first, got {}", op,
                    x.dtype());
}

void check_indices(const char* op, const Tensor& indices) {
  check_defined(op, indices);
  check<DTypeError>(indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32,
                    "{}: indices must be int64 or int32, got {}", op, indices.dtype());
}

}  // namespace fsdptrain::ops
