#include "runtime/optim/chunk_checks.h"

#include "runtime/base/error.h"

namespace fsdptrain::optim {

void check_chunks(const char* op, const std::vector<nn::FlatChunk>& chunks) {
  for (const nn::FlatChunk& chunk : chunks) {
    const Tensor& p = chunk.parameters;
    const Tensor& g = chunk.gradients;
    check<StorageError>(p.defined() && g.defined(), "{}: a chunk has no parameters or no gradients",
                        op);
    check<DTypeError>(
        p.dtype() == g.dtype() && (p.dtype() == DType::Float32 || p.dtype() == DType::Float64),
        "{}: parameters and gradients must both be float32 or float64, got {} and {}", op,
        p.dtype(), g.dtype());
    check<DeviceError>(p.device() == g.device(), "{}: parameters are on {} but gradients on {}", op,
                       p.device(), g.device());
    check<ShapeError>(
        p.dims() == 1 && p.shape() == g.shape() && p.is_contiguous() && g.is_contiguous(),
        "{}: parameters and gradients must be dense and of one length, got {} and {}", op,
        p.shape(), g.shape());
    for (const nn::Segment& segment : chunk.segments) {
      check<ShapeError>(
          0 <= segment.begin && segment.begin <= segment.end && segment.end <= p.numel(),
          "{}: the segment {} of [{}, {}) is outside its chunk of {} elements", op, segment.name,
          segment.begin, segment.end, p.numel());
    }
  }
}

void check_step(const char* op, const std::vector<nn::FlatChunk>& chunks, std::size_t num_states,
                const Tensor& gradient_scale) {
  check_chunks(op, chunks);
  check<ShapeError>(chunks.size() == num_states,
                    "{}: was made for {} chunks, got {}: make a new optimizer for them", op,
                    num_states, chunks.size());
  check<DTypeError>(!gradient_scale.defined() ||
                        (gradient_scale.dtype() == DType::Float64 && gradient_scale.numel() == 1),
                    "{}: gradient_scale must be one float64", op);
}

}  // namespace fsdptrain::optim
