#include "kernels/rotary.h"

#include "kernels/cpu/rotary.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void rotary(const Launch& launch, const Rotary& args) {
  run_on(launch, "rotary", [&]<Isa isa>() { cpu::rotary<isa>(launch, args); });
}

}  // namespace fsdptrain::kernels
