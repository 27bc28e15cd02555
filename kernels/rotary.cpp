#include "kernels/rotary.h"

#include <utility>

#include "kernels/cpu/rotary.h"
#include "kernels/dispatch.h"
#include "kernels/host_array.h"

namespace fsdptrain::kernels {

void rotary(const Launch& launch, const Rotary& args) {
  const auto pairs = static_cast<std::size_t>(args.in_BTHD.sizes[3] / 2);
  HostArray<double> frequencies(launch, {args.frequencies, pairs});
  run_on(launch, "rotary", {.writes = {args.out_BTHD}, .reads = {args.in_BTHD, args.positions_BT}},
         [args, frequencies = std::move(frequencies)]<Isa isa>(const Launch& cpu) {
           Rotary same = args;
           same.frequencies = frequencies.get().data();
           cpu::rotary<isa>(cpu, same);
         });
}

}  // namespace fsdptrain::kernels
