#include "kernels/checksum.h"

#include "kernels/cpu/checksum.h"

namespace fsdptrain::kernels {

std::uint64_t checksum64(Isa isa, std::span<const std::byte> bytes) {
  return dispatch_isa(
      isa, [&]<Isa variant>() { return cpu::checksum64<variant>(bytes.data(), bytes.size()); });
}

std::uint64_t checksum64(std::span<const std::byte> bytes) {
  static const Isa isa = select_isa();
  return checksum64(isa, bytes);
}

}  // namespace fsdptrain::kernels
