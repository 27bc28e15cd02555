#include "kernels/norm.h"

#include "kernels/cpu/norm.h"
#include "kernels/cpu/reduce.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

// Workspace of the gradient of a weight.
auto weight_partials(const NormShape& shape) {
  return [shape](const Launch& cpu) {
    return allocate_partials(cpu, {.reduced = shape.rows, .inner = shape.width}, kSumRows);
  };
}

}  // namespace

void layer_norm(const Launch& launch, const LayerNormOut& out, const LayerNormIn& in,
                const NormShape& shape, double eps) {
  run_on(launch, "layer_norm",
         {.writes = {out.y, out.mean, out.rstd, {out.sum, in.has_residual}},
          .reads = {in.x, in.weight, {in.bias, in.has_bias}, {in.residual, in.has_residual}}},
         [=]<Isa isa>(const Launch& cpu) { cpu::layer_norm<isa>(cpu, out, in, shape, eps); });
}

void layer_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                         const LayerNormSaved& saved, const NormShape& shape) {
  run_on(launch, "layer_norm_backward",
         {.writes = {dx}, .reads = {dy, weight, saved.x, saved.mean, saved.rstd}},
         [=]<Isa isa>(const Launch& cpu) {
           cpu::layer_norm_backward<isa>(cpu, dx, dy, weight, saved, shape);
         });
}

void layer_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                                const LayerNormSaved& saved, const NormShape& shape,
                                bool accumulate) {
  run_on(
      launch, "layer_norm_backward_weight",
      {.writes = {dweight}, .reads = {dy, saved.x, saved.mean, saved.rstd, {dweight, accumulate}}},
      weight_partials(shape), [=]<Isa isa>(const Launch& cpu, const Allocation& partials) {
        cpu::layer_norm_backward_weight<isa>(cpu, dweight, dy, saved, shape, accumulate,
                                             partials.data());
      });
}

void rms_norm(const Launch& launch, const RmsNormOut& out, const RmsNormIn& in,
              const NormShape& shape, double eps) {
  run_on(launch, "rms_norm",
         {.writes = {out.y, out.rstd, {out.sum, in.has_residual}},
          .reads = {in.x, in.weight, {in.residual, in.has_residual}}},
         [=]<Isa isa>(const Launch& cpu) { cpu::rms_norm<isa>(cpu, out, in, shape, eps); });
}

void rms_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                       const RmsNormSaved& saved, const NormShape& shape) {
  run_on(launch, "rms_norm_backward", {.writes = {dx}, .reads = {dy, weight, saved.x, saved.rstd}},
         [=]<Isa isa>(const Launch& cpu) {
           cpu::rms_norm_backward<isa>(cpu, dx, dy, weight, saved, shape);
         });
}

void rms_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                              const RmsNormSaved& saved, const NormShape& shape, bool accumulate) {
  run_on(launch, "rms_norm_backward_weight",
         {.writes = {dweight}, .reads = {dy, saved.x, saved.rstd, {dweight, accumulate}}},
         weight_partials(shape), [=]<Isa isa>(const Launch& cpu, const Allocation& partials) {
           cpu::rms_norm_backward_weight<isa>(cpu, dweight, dy, saved, shape, accumulate,
                                              partials.data());
         });
}

}  // namespace fsdptrain::kernels
