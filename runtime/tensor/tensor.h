#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/base/view.h"
#include "runtime/tensor/storage.h"

namespace fsdptrain {

namespace autograd {
struct Meta;
}

// A dense or strided array: a value handle over a shared storage. Copies share storage and
// autograd history; const does not protect the bytes. Belongs to the thread of its rank context.
class Tensor {
 public:
  // Undefined: no storage; only defined() and assignment may be used.
  Tensor() = default;

  // Not initialised. ShapeError for sizes that are negative or overflow.
  static Tensor empty(const Shape& shape, DType dtype = DType::Float32,
                      Device device = Device::cpu(),
                      MemoryCategory category = MemoryCategory::Activation);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::Float32,
                     Device device = Device::cpu(),
                     MemoryCategory category = MemoryCategory::Activation);
  static Tensor zeros(const Shape& shape, DType dtype = DType::Float32,
                      Device device = Device::cpu(),
                      MemoryCategory category = MemoryCategory::Activation) {
    return full(shape, 0, dtype, device, category);
  }
  // On the CPU, one dimension, each value rounded to `dtype`.
  static Tensor of(std::initializer_list<double> values, DType dtype = DType::Float32);
  // A copy of host values on the CPU; T is float, double, std::int64_t, std::int32_t, ...
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape,
                     MemoryCategory category = MemoryCategory::Activation) {
    return from_bytes(std::as_bytes(values), shape, kDTypeOf<T>, category);
  }
  // A window on bytes that `storage` holds; offset in elements. ShapeError if it does not fit
  // or a stride is negative, StorageError without storage.
  static Tensor over(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape,
                     const Strides& strides, std::int64_t offset);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  std::int64_t offset() const { return offset_; }
  int dims() const { return shape_.dims(); }
  // The size of one dimension; negative dims count from the right.
  std::int64_t size(int dim) const;
  std::int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  Device device() const;
  bool is_contiguous() const { return fsdptrain::is_contiguous(shape_, strides_); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  // What a kernel takes. StorageError while the storage is released.
  View view() const;
  Launch launch() const;

  // Single values, for the host. It waits for those of a GPU; DeviceError for those of meta.
  // `index` counts elements in row-major order.
  double item(std::int64_t index = 0) const;
  void set_item(std::int64_t index, double value);
  std::vector<double> to_vector() const;
  // The bytes of a contiguous CPU tensor.
  std::span<const std::byte> bytes() const { return contiguous_bytes(); }
  template <class T>
  std::span<const T> values() const {
    return values_in<const T>(contiguous_bytes());
  }
  // The same to be written, at once: a backward that saved the tensor before this call fails, one
  // that saved it after does not notice.
  std::span<std::byte> mutable_bytes() const;
  template <class T>
  std::span<T> mutable_values() const {
    return values_in<T>(mutable_bytes());
  }

  // Same storage, no history.
  Tensor detach() const;
  // The same storage seen with another layout; no history.
  Tensor alias(const Shape& shape, const Strides& strides, std::int64_t offset) const;

  // Makes this handle a leaf whose gradient is wanted (floating dtypes only), or cuts its history.
  // AutogradError for true on a tensor with history.
  Tensor& set_requires_grad(bool requires_grad);
  bool requires_grad() const { return meta_ != nullptr; }
  // A leaf: its own producer is no op. Tensors without history are leaves.
  bool is_leaf() const;
  // The accumulated gradient of a leaf; undefined before the first backward. AutogradError for a
  // tensor that is no leaf or wants no gradient.
  Tensor grad() const;
  void zero_grad();
  const std::shared_ptr<autograd::Meta>& autograd_meta() const { return meta_; }
  void set_autograd_meta(std::shared_ptr<autograd::Meta> meta) { meta_ = std::move(meta); }

 private:
  static Tensor from_bytes(std::span<const std::byte> bytes, const Shape& shape, DType dtype,
                           MemoryCategory category);
  std::span<std::byte> contiguous_bytes() const;
  void check_dtype(DType wanted) const;
  template <class T>
  std::span<T> values_in(std::span<std::byte> raw) const {
    check_dtype(kDTypeOf<std::remove_const_t<T>>);
    return {reinterpret_cast<T*>(raw.data()), raw.size() / sizeof(T)};
  }
  std::int64_t element_offset(std::int64_t index) const;

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_ = 0;
  DType dtype_ = DType::Float32;
  std::shared_ptr<autograd::Meta> meta_;
};

}  // namespace fsdptrain
