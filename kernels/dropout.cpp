#include "kernels/dropout.h"

#include "kernels/cpu/dropout.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void dropout(const Launch& launch, const View& out, const View& in, const DropoutMask& mask) {
  run_on(launch, "dropout", {.writes = {out}, .reads = {in}},
         [=]<Isa isa>(const Launch& cpu) { cpu::dropout<isa>(cpu, out, in, mask); });
}

}  // namespace fsdptrain::kernels
