#include "kernels/gather.h"

#include "kernels/cpu/gather.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void gather(const Launch& launch, const View& out, const View& in, const View& indices,
            const GatherShape& shape) {
  run_on(launch, "gather", {.writes = {out}, .reads = {in, indices}},
         [=]<Isa isa>(const Launch& cpu) { cpu::gather<isa>(cpu, out, in, indices, shape); });
}

void scatter_add(const Launch& launch, const View& out, const View& indices, const View& in,
                 const GatherShape& shape) {
  run_on(launch, "scatter_add", {.writes = {out}, .reads = {out, indices, in}},
         [=]<Isa isa>(const Launch& cpu) { cpu::scatter_add<isa>(cpu, out, indices, in, shape); });
}

}  // namespace fsdptrain::kernels
