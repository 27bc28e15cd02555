#include "kernels/cross_entropy.h"

#include "kernels/cpu/cross_entropy.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void cross_entropy_forward(const Launch& launch, const CrossEntropyForward& args) {
  run_on(launch, "cross_entropy",
         {.writes = {args.losses, args.log_sum_exps}, .reads = {args.logits, args.targets}},
         [args]<Isa isa>(const Launch& cpu) { cpu::cross_entropy_forward<isa>(cpu, args); });
}

void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args) {
  run_on(launch, "cross_entropy_backward",
         {.writes = {args.dlogits},
          .reads = {args.logits, args.log_sum_exps, args.targets, args.dloss}},
         [args]<Isa isa>(const Launch& cpu) { cpu::cross_entropy_backward<isa>(cpu, args); });
}

void cross_entropy_forward_backward(const Launch& launch, const CrossEntropyForwardBackward& args) {
  run_on(
      launch, "cross_entropy_forward_backward",
      {.writes = {args.losses, args.logits}, .reads = {args.logits, args.targets}},
      [args]<Isa isa>(const Launch& cpu) { cpu::cross_entropy_forward_backward<isa>(cpu, args); });
}

}  // namespace fsdptrain::kernels
