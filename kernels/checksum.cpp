#include "kernels/checksum.h"

#include "kernels/cpu/checksum.h"

namespace fsdptrain::kernels {
namespace {

Isa isa_of_process() {
  static const Isa isa = select_isa();
  return isa;
}

}  // namespace

std::uint64_t checksum64(Isa isa, std::span<const std::byte> bytes) {
  return dispatch_isa(
      isa, [&]<Isa variant>() { return cpu::checksum64<variant>(bytes.data(), bytes.size()); });
}

std::uint64_t checksum64(std::span<const std::byte> bytes) {
  return checksum64(isa_of_process(), bytes);
}

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the variant fills the state.
Checksum64::Checksum64(Isa isa) : isa_(isa) {
  dispatch_isa(isa_, [&]<Isa variant>() { cpu::begin_checksum64<variant>(state_.data()); });
}

Checksum64::Checksum64() : Checksum64(isa_of_process()) {}

void Checksum64::append(std::span<const std::byte> bytes) {
  dispatch_isa(isa_, [&]<Isa variant>() {
    cpu::append_checksum64<variant>(state_.data(), bytes.data(), bytes.size());
  });
}

std::uint64_t Checksum64::value() const {
  return dispatch_isa(
      isa_, [&]<Isa variant>() { return cpu::value_of_checksum64<variant>(state_.data()); });
}

}  // namespace fsdptrain::kernels
