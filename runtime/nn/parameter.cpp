#include "runtime/nn/parameter.h"

namespace fsdptrain::nn {

Tensor unplaced_parameter(const Shape& shape) {
  constexpr DType kDType = DType::Float32;
  const auto nbytes = static_cast<std::size_t>(shape.numel()) * size_of(kDType);
  const auto storage = Storage::placed(Device::meta(), nbytes);
  storage->set_name("a parameter that has no owner yet");
  return Tensor::over(storage, kDType, shape, Strides::contiguous(shape), 0);
}

}  // namespace fsdptrain::nn
