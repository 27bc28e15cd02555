#include "kernels/norm.h"

#include "kernels/cpu/norm.h"
#include "kernels/cpu/reduce.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

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
  const Allocation partials =
      allocate_partials(launch, {.reduced = shape.rows, .inner = shape.width}, kSumRows);
  run_on(launch, "layer_norm_backward_weight", [&]<Isa isa>() {
    cpu::layer_norm_backward_weight<isa>(launch, dweight, dy, saved, shape, accumulate,
                                         partials.data());
  });
}

}  // namespace fsdptrain::kernels
