#include "kernels/softmax.h"

#include "kernels/cpu/softmax.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void softmax(const Launch& launch, const View& y, const View& x, const SoftmaxShape& shape,
             SoftmaxForm form) {
  run_on(launch, "softmax", {.writes = {y}, .reads = {x}},
         [=]<Isa isa>(const Launch& cpu) { cpu::softmax<isa>(cpu, y, x, shape, form); });
}

void softmax_backward(const Launch& launch, const View& dx, const View& dy, const View& y,
                      const SoftmaxShape& shape, SoftmaxForm form) {
  run_on(
      launch, "softmax_backward", {.writes = {dx}, .reads = {dy, y}},
      [=]<Isa isa>(const Launch& cpu) { cpu::softmax_backward<isa>(cpu, dx, dy, y, shape, form); });
}

}  // namespace fsdptrain::kernels
