#include "checkpoint/convert/parts.h"

#include <array>
#include <utility>

#include "runtime/base/dtype.h"

namespace fsdptrain::checkpoint {

Parts::Parts(CheckpointReader& reader, const SavedTensor& tensor, SavedPlane plane)
    : reader_(reader), tensor_(tensor), plane_(std::move(plane)) {}

std::span<const std::byte> Parts::read(const kernels::Range& elements) {
  bytes_.resize(static_cast<std::size_t>(elements.size()) * size_of(plane_.dtype));
  const std::array wants{CheckpointReader::Want{
      .tensor = &tensor_, .plane = plane_.name, .elements = elements, .out = bytes_}};
  reader_.read(wants);
  return bytes_;
}

}  // namespace fsdptrain::checkpoint
