#include "kernels/norm.h"

#include "kernels/cpu/norm.h"
#include "kernels/cpu/reduce.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

Allocation allocate_weight_partials(const Launch& launch, const NormShape& shape) {
  return allocate_partials(launch, {.reduced = shape.rows, .inner = shape.width}, kSumRows);
}

}  // namespace

void layer_norm(const Launch& launch, const LayerNormOut& out, const LayerNormIn& in,
                const NormShape& shape, double eps) {
  run_on(launch, "layer_norm",
         [&]<Isa isa>() { cpu::layer_norm<isa>(launch, out, in, shape, eps); });
}

void layer_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                         const LayerNormSaved& saved, const NormShape& shape) {
  run_on(launch, "layer_norm_backward",
         [&]<Isa isa>() { cpu::layer_norm_backward<isa>(launch, dx, dy, weight, saved, shape); });
}

void layer_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                                const LayerNormSaved& saved, const NormShape& shape,
                                bool accumulate) {
  const Allocation partials = allocate_weight_partials(launch, shape);
  run_on(launch, "layer_norm_backward_weight", [&]<Isa isa>() {
    cpu::layer_norm_backward_weight<isa>(launch, dweight, dy, saved, shape, accumulate,
                                         partials.data());
  });
}

void rms_norm(const Launch& launch, const RmsNormOut& out, const RmsNormIn& in,
              const NormShape& shape, double eps) {
  run_on(launch, "rms_norm", [&]<Isa isa>() { cpu::rms_norm<isa>(launch, out, in, shape, eps); });
}

void rms_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                       const RmsNormSaved& saved, const NormShape& shape) {
  run_on(launch, "rms_norm_backward",
         [&]<Isa isa>() { cpu::rms_norm_backward<isa>(launch, dx, dy, weight, saved, shape); });
}

void rms_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                              const RmsNormSaved& saved, const NormShape& shape, bool accumulate) {
  const Allocation partials = allocate_weight_partials(launch, shape);
  run_on(launch, "rms_norm_backward_weight", [&]<Isa isa>() {
    cpu::rms_norm_backward_weight<isa>(launch, dweight, dy, saved, shape, accumulate,
                                       partials.data());
  });
}

}  // namespace fsdptrain::kernels
