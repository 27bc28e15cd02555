#include "kernels/copy.h"

#include "kernels/cpu/copy.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void copy(const Launch& launch, const View& out, const View& in) {
  run_on(launch, "copy", {.writes = {out}, .reads = {in}},
         [=]<Isa isa>(const Launch& cpu) { cpu::copy<isa>(cpu, out, in); });
}

void accumulate(const Launch& launch, const View& out, const View& in) {
  run_on(launch, "accumulate", {.writes = {out}, .reads = {out, in}},
         [=]<Isa isa>(const Launch& cpu) { cpu::accumulate<isa>(cpu, out, in); });
}

void fill(const Launch& launch, const View& out, double value) {
  run_on(launch, "fill", {.writes = {out}, .reads = {}},
         [=]<Isa isa>(const Launch& cpu) { cpu::fill<isa>(cpu, out, value); });
}

}  // namespace fsdptrain::kernels
