#include "runtime/tensor/transfer.h"

#include "kernels/copy.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain {
namespace {

// The one that has the stream.
Device device_of_copy(const Tensor& out, const Tensor& in) {
  for (const Tensor* tensor : {&out, &in}) {
    check<DeviceError>(tensor->device().type != DeviceType::Meta,
                       "copy_async: the meta device has no bytes");
  }
  const Device device = in.device() == Device::cpu() ? out.device() : in.device();
  check<DeviceError>(out.device() == Device::cpu() || out.device() == device,
                     "copy_async: cannot copy from {} to {} on one stream", in.device(),
                     out.device());
  return device;
}

// In memory of its own, in row-major order.
Tensor dense(const Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return tensor.detach();
  }
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
  kernels::copy(copy.launch(), copy.view(), tensor.view());
  return copy;
}

}  // namespace

Tensor pinned(const Shape& shape, DType dtype, Device device, MemoryCategory category) {
  check<DeviceError>(device.type != DeviceType::Meta, "pinned: the meta device has no bytes");
  const auto nbytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return Tensor::over(Storage::pinned(device, nbytes, category), dtype, shape,
                      Strides::contiguous(shape), 0);
}

void copy_async(const Tensor& out, const Tensor& in) {
  check<DTypeError>(out.dtype() == in.dtype(), "copy_async: from {} to {}", in.dtype(),
                    out.dtype());
  check<ShapeError>(out.numel() == in.numel() && out.is_contiguous() && in.is_contiguous(),
                    "copy_async: needs two contiguous tensors of one size, got {} and {}",
                    in.shape(), out.shape());
  const Device device = device_of_copy(out, in);
  DeviceContext& context = current_context().device(device);
  const Stream& stream = context.current_stream();
  context.api()->make_current();
  context.api()->copy(out.view().data, in.view().data,
                      static_cast<std::size_t>(in.numel()) * size_of(in.dtype()), stream.handle());
  if (device != Device::cpu()) {
    out.storage()->note_use(stream);
    in.storage()->note_use(stream);
  }
  out.storage()->bump_version();
}

Tensor to_device(const Tensor& tensor, Device device) {
  check<DeviceError>(tensor.device().type != DeviceType::Meta && device.type != DeviceType::Meta,
                     "to_device: from {} to {}: the meta device has no bytes", tensor.device(),
                     device);
  const Tensor from = dense(tensor);
  if (tensor.device() == device) {
    return from;
  }
  const bool to_cpu = device == Device::cpu();
  if (!to_cpu && from.device() != Device::cpu()) {
    return to_device(to_device(from, Device::cpu()), device);
  }
  Tensor out = to_cpu ? pinned(from.shape(), from.dtype(), from.device())
                      : Tensor::empty(from.shape(), from.dtype(), device);
  copy_async(out, from);
  if (to_cpu) {
    current_context().device(from.device()).current_stream().synchronize();
  }
  return out;
}

}  // namespace fsdptrain
