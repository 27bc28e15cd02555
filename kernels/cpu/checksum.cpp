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

// Of Checksum64.
static_assert(sizeof(XXH3_state_t) == 576 && alignof(XXH3_state_t) == 64);

template <>
void cpu::begin_checksum64<kIsa>(void* state) {
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state));
}

template <>
void cpu::append_checksum64<kIsa>(void* state, const void* data, std::size_t nbytes) {
  // The library takes no null address, not even for no bytes.
  if (nbytes > 0) {
    XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, nbytes);
  }
}

template <>
std::uint64_t cpu::value_of_checksum64<kIsa>(const void* state) {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
}

}  // namespace fsdptrain::kernels
