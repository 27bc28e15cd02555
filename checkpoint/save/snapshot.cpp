#include "checkpoint/save/snapshot.h"

#include <algorithm>

#include "kernels/copy_bytes.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"

namespace fsdptrain::checkpoint {
namespace {

// Of each piece in the staging memory: of any element, and of a line of the caches.
constexpr std::int64_t kAlignment = 64;

std::int64_t nbytes_of(const Tensor& window) {
  return window.numel() * static_cast<std::int64_t>(size_of(window.dtype()));
}

std::int64_t place_of(const Tensor& window) {
  return (nbytes_of(window) + kAlignment - 1) / kAlignment * kAlignment;
}

// A window on the staging memory like another one.
Tensor like(const Tensor& bytes, std::int64_t begin, const Tensor& window) {
  return Tensor::over(bytes.storage(), window.dtype(), window.shape(), window.strides(),
                      begin / static_cast<std::int64_t>(size_of(window.dtype())));
}

}  // namespace

std::vector<Tensor> windows_of(const StateTensors& tensors, std::span<const HeldPiece> pieces) {
  std::vector<Tensor> windows;
  for (const HeldPiece& piece : pieces) {
    const StateGroup& group = tensors.groups[piece.group];
    const Tensor& values = group.planes[piece.plane].values;
    const std::int64_t in_chunk = tensors.tensors[piece.tensor].part.placement.in_buffer.begin +
                                  piece.elements.begin -
                                  tensors.chunk_rank * group.layout->chunk_numel();
    const Shape shape{piece.elements.size()};
    windows.push_back(values.alias(shape, Strides::contiguous(shape), values.offset() + in_chunk));
  }
  return windows;
}

StagingMemory::StagingMemory(std::span<const Tensor> windows) {
  allocate(windows);
}

std::int64_t StagingMemory::nbytes_for(std::span<const Tensor> windows) {
  std::int64_t nbytes = 0;
  for (const Tensor& window : windows) {
    nbytes += place_of(window);
  }
  return nbytes;
}

void StagingMemory::allocate(std::span<const Tensor> windows) {
  const std::int64_t nbytes = nbytes_for(windows);
  if (bytes_.defined() && bytes_.numel() == nbytes) {
    return;
  }
  bytes_ = {};
  const Device device = windows.empty() ? Device::cpu() : windows.front().device();
  bytes_ = device == Device::cpu()
               ? Tensor::empty({nbytes}, DType::UInt8, device, MemoryCategory::Data)
               : pinned({nbytes}, DType::UInt8, device);
  std::ranges::fill(bytes_.mutable_bytes(), std::byte{0});
}

std::vector<std::span<const std::byte>> StagingMemory::copy(std::span<const Tensor> windows) {
  allocate(windows);
  std::vector<std::span<const std::byte>> copies;
  std::int64_t begin = 0;
  for (const Tensor& window : windows) {
    const Tensor copy = like(bytes_, begin, window);
    copies.push_back(copy.bytes());
    if (window.device() == Device::cpu()) {
      kernels::copy_bytes(bytes_.launch(), bytes_.mutable_bytes().data() + begin,
                          window.bytes().data(), nbytes_of(window), kernels::Caching::Stream);
    } else {
      copy_async(copy, window);
    }
    begin += place_of(window);
  }
  if (!windows.empty() && windows.front().device() != Device::cpu()) {
    current_context().device(windows.front().device()).current_stream().synchronize();
  }
  return copies;
}

}  // namespace fsdptrain::checkpoint
