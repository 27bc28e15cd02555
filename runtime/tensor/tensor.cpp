#include "runtime/tensor/tensor.h"

#include <algorithm>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/functors/element.h"
#include "runtime/autograd/meta.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"

namespace fsdptrain {
namespace {

std::size_t bytes_of(const char* op, const Shape& shape, DType dtype) {
  check_sizes(op, shape);
  std::int64_t nbytes = 0;
  check<ShapeError>(
      !__builtin_mul_overflow(shape.numel(), static_cast<std::int64_t>(size_of(dtype)), &nbytes),
      "{}: {} elements of {} overflow 64 bits of bytes", op, shape, dtype);
  return static_cast<std::size_t>(nbytes);
}

// Whether a layout from `offset` on stays within `capacity` elements.
bool fits(const Shape& shape, const Strides& strides, std::int64_t offset, std::int64_t capacity) {
  if (shape.numel() == 0) {
    return offset <= capacity;
  }
  std::int64_t last = offset;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    std::int64_t span = 0;
    if (__builtin_mul_overflow(shape[dim] - 1, strides[dim], &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return false;
    }
  }
  return last < capacity;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device, MemoryCategory category) {
  Tensor tensor;
  tensor.storage_ = Storage::allocate(device, bytes_of("empty", shape, dtype), category);
  tensor.shape_ = shape;
  tensor.strides_ = Strides::contiguous(shape);
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device,
                    MemoryCategory category) {
  Tensor tensor = empty(shape, dtype, device, category);
  kernels::fill(tensor.launch(), tensor.view(), value);
  return tensor;
}

Tensor Tensor::of(std::initializer_list<double> values, DType dtype) {
  Tensor tensor = empty({static_cast<std::int64_t>(values.size())}, dtype);
  std::int64_t index = 0;
  for (const double value : values) {
    tensor.set_item(index++, value);
  }
  return tensor;
}

Tensor Tensor::from_bytes(std::span<const std::byte> bytes, const Shape& shape, DType dtype,
                          MemoryCategory category) {
  check<ShapeError>(bytes.size() == bytes_of("from", shape, dtype),
                    "from: shape {} of {} does not hold {} bytes", shape, dtype, bytes.size());
  Tensor tensor = empty(shape, dtype, Device::cpu(), category);
  if (!bytes.empty()) {
    std::memcpy(tensor.storage_->data(), bytes.data(), bytes.size());
  }
  return tensor;
}

Tensor Tensor::over(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape,
                    const Strides& strides, std::int64_t offset) {
  check<StorageError>(storage != nullptr, "over: the storage is undefined");
  bytes_of("over", shape, dtype);
  check<ShapeError>(strides.size() == shape.dims(), "over: shape {} needs {} strides, got {}",
                    shape, shape.dims(), strides);
  for (const std::int64_t stride : strides) {
    check<ShapeError>(stride >= 0, "over: strides must not be negative, got {}", strides);
  }
  const auto capacity = static_cast<std::int64_t>(storage->nbytes() / size_of(dtype));
  check<ShapeError>(offset >= 0 && fits(shape, strides, offset, capacity),
                    "over: shape {} with strides {} at {} does not fit {} elements", shape, strides,
                    offset, capacity);
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  tensor.shape_ = shape;
  tensor.strides_ = strides;
  tensor.offset_ = offset;
  tensor.dtype_ = dtype;
  return tensor;
}

std::int64_t Tensor::size(int dim) const {
  return shape_[normalize_dim("size", dim, dims())];
}

Device Tensor::device() const {
  check<StorageError>(defined(), "device: the tensor is undefined");
  return storage_->device();
}

View Tensor::view() const {
  check<StorageError>(defined(), "view: the tensor is undefined");
  View view;
  std::byte* const base = storage_->data();
  view.data =
      base == nullptr ? nullptr : base + offset_ * static_cast<std::int64_t>(size_of(dtype_));
  view.dtype = dtype_;
  view.dims = dims();
  std::ranges::copy(shape_, view.sizes);
  std::ranges::copy(strides_, view.strides);
  return view;
}

Launch Tensor::launch() const {
  return current_context().launch(device());
}

std::int64_t Tensor::element_offset(std::int64_t index) const {
  check<ShapeError>(0 <= index && index < numel(), "item: index {} is outside shape {}", index,
                    shape_);
  std::int64_t position = 0;
  for (int dim = dims() - 1; dim >= 0; --dim) {
    position += index % shape_[dim] * strides_[dim];
    index /= shape_[dim];
  }
  return position;
}

double Tensor::item(std::int64_t index) const {
  const std::int64_t position = element_offset(index);
  check<DeviceError>(device() != Device::meta(), "item: the tensor is on meta, without values");
  if (device() != Device::cpu()) {
    return to_device(alias({}, {}, offset_ + position), Device::cpu()).item();
  }
  return dispatch_any(dtype_, [&]<class T>() {
    return static_cast<double>(kernels::load(static_cast<const T*>(view().data)[position]));
  });
}

void Tensor::set_item(std::int64_t index, double value) {
  const std::int64_t position = element_offset(index);
  check<DeviceError>(device() != Device::meta(), "set_item: the tensor is on meta, without values");
  View element = view();
  element.data =
      static_cast<std::byte*>(element.data) + position * static_cast<std::int64_t>(size_of(dtype_));
  element.dims = 0;
  kernels::fill(launch(), element, value);
  storage_->bump_version();
}

std::vector<double> Tensor::to_vector() const {
  if (device().type == DeviceType::Cuda) {
    return to_device(*this, Device::cpu()).to_vector();
  }
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(numel()));
  for (std::int64_t index = 0; index < numel(); ++index) {
    values.push_back(item(index));
  }
  return values;
}

std::span<std::byte> Tensor::mutable_bytes() const {
  const std::span<std::byte> bytes = contiguous_bytes();
  storage_->bump_version();
  return bytes;
}

std::span<std::byte> Tensor::contiguous_bytes() const {
  check<DeviceError>(device() == Device::cpu(), "bytes: needs a tensor on cpu, got {}", device());
  check<ShapeError>(is_contiguous(), "bytes: needs a contiguous tensor, got {} with strides {}",
                    shape_, strides_);
  return {static_cast<std::byte*>(view().data),
          static_cast<std::size_t>(numel()) * size_of(dtype_)};
}

void Tensor::check_dtype(DType wanted) const {
  check<DTypeError>(dtype_ == wanted, "values: the tensor is {}, not {}", dtype_, wanted);
}

Tensor Tensor::detach() const {
  Tensor tensor = *this;
  tensor.meta_.reset();
  return tensor;
}

Tensor Tensor::alias(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  check<StorageError>(defined(), "alias: the tensor is undefined");
  return over(storage_, dtype_, shape, strides, offset);
}

Tensor& Tensor::set_requires_grad(bool requires_grad) {
  check<DTypeError>(!requires_grad || is_floating(dtype_),
                    "requires_grad: needs a floating dtype, got {}", dtype_);
  check<AutogradError>(!requires_grad || is_leaf(),
                       "requires_grad: a tensor of shape {} with history is no leaf: detach() it "
                       "first",
                       shape_);
  if (requires_grad == this->requires_grad()) {
    return *this;
  }
  meta_ = requires_grad ? autograd::make_leaf(*this) : nullptr;
  return *this;
}

bool Tensor::is_leaf() const {
  return meta_ == nullptr || meta_->producer == nullptr;
}

Tensor Tensor::grad() const {
  check<AutogradError>(requires_grad(), "grad: the tensor of shape {} does not require grad",
                       shape_);
  check<AutogradError>(is_leaf(),
                       "grad: the tensor of shape {} is no leaf: only leaves keep their gradient",
                       shape_);
  return autograd::gradient_of(*meta_);
}

void Tensor::zero_grad() {
  if (meta_) {
    autograd::clear_gradient(*meta_);
  }
}

}  // namespace fsdptrain
