#include "runtime/nn/parameter.h"

namespace fsdptrain::nn {
namespace {

constexpr const char* kUnplaced = "a parameter that has no owner yet";

}  // namespace

Tensor unplaced_parameter(const Shape& shape) {
  constexpr DType kDType = DType::Float32;
  const auto nbytes = static_cast<std::size_t>(shape.numel()) * size_of(kDType);
  const auto storage = Storage::placed(Device::meta(), nbytes);
  storage->set_name(kUnplaced);
  return Tensor::over(storage, kDType, shape, Strides::contiguous(shape), 0);
}

bool is_unplaced(const Tensor& parameter) {
  const Storage& storage = *parameter.storage();
  return storage.released() && storage.name() == kUnplaced;
}

}  // namespace fsdptrain::nn
