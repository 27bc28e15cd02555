#pragma once

#include <cstdint>
#include <fmt/core.h>

namespace fsdptrain {

enum class DeviceType : std::uint8_t {
  Cpu,
  Cuda,
  Meta,  // sizes and lifetimes without bytes: every op allocates and launches nothing
};

struct Device {
  DeviceType type = DeviceType::Cpu;
  int index = 0;

  static constexpr Device cpu() { return {DeviceType::Cpu, 0}; }
  static constexpr Device meta() { return {DeviceType::Meta, 0}; }
  static constexpr Device cuda(int index) { return {DeviceType::Cuda, index}; }

  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace fsdptrain

template <>
struct fmt::formatter<fsdptrain::Device> {
  constexpr auto parse(format_parse_context& context) const { return context.begin(); }
  format_context::iterator format(const fsdptrain::Device& device, format_context& context) const;
};
