#include "kernels/cross_entropy.h"

#include "kernels/cpu/cross_entropy.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void cross_entropy_forward(const Launch& launch, const CrossEntropyForward& args) {
  run_on(launch, "cross_entropy",
         [&]<Isa isa>() { cpu::cross_entropy_forward<isa>(launch, args); });
}

void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args) {
  run_on(launch, "cross_entropy_backward",
         [&]<Isa isa>() { cpu::cross_entropy_backward<isa>(launch, args); });
}

void cross_entropy_forward_backward(const Launch& launch, const CrossEntropyForwardBackward& args) {
  run_on(launch, "cross_entropy_forward_backward",
         [&]<Isa isa>() { cpu::cross_entropy_forward_backward<isa>(launch, args); });
}

}  // namespace fsdptrain::kernels
