#pragma once

#include "runtime/tensor/tensor.h"

// What every op asks of its inputs before it allocates anything; messages name op and values.
namespace fsdptrain::ops {

// StorageError for a tensor without storage; the checks below ask for this first.
void check_defined(const char* op, const Tensor& x);
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b);
void check_same_device(const char* op, const Tensor& a, const Tensor& b);
// float32, float64 or bfloat16: what floating ops compute with.
void check_floating(const char* op, const Tensor& x);
// Any dtype but float16, which is for storage and casts.
void check_numeric(const char* op, const Tensor& x);
// int64 or int32 indices.
void check_indices(const char* op, const Tensor& indices);

}  // namespace fsdptrain::ops
