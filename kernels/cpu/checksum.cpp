#include "kernels/cpu/checksum.h"

// All of the library becomes static code of this unit, compiled for its variant: the shared library
// is compiled for the baseline alone.
#define XXH_INLINE_ALL
// The compiler's own AVX-512 header leaves lanes undefined that nothing reads.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/parallel.h"

namespace fsdptrain::kernels {

template <>
std::uint64_t cpu::checksum64<kIsa>(const void* data, std::size_t nbytes) {
  return XXH3_64bits(data, nbytes);
}

}  // namespace fsdptrain::kernels
