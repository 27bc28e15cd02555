#include "kernels/gather.h"

#include "kernels/cpu/gather.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void gather(const Launch& launch, const View& out, const View& in, const View& indices,
            const GatherShape& shape) {
  run_on(launch, "gather", [&]<Isa isa>() { cpu::gather<isa>(launch, out, in, indices, shape); });
}

void scatter_add(const Launch& launch, const View& out, const View& indices, const View& in,
                 const GatherShape& shape) {
  run_on(launch, "scatter_add",
         [&]<Isa isa>() { cpu::scatter_add<isa>(launch, out, indices, in, shape); });
}

}  // namespace fsdptrain::kernels
