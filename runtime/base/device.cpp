#include "runtime/base/device.h"

fmt::format_context::iterator fmt::formatter<fsdptrain::Device>::format(
    const fsdptrain::Device& device, format_context& context) const {
  switch (device.type) {
    case fsdptrain::DeviceType::Cpu:
      return fmt::format_to(context.out(), "cpu");
    case fsdptrain::DeviceType::Cuda:
      return fmt::format_to(context.out(), "cuda:{}", device.index);
    case fsdptrain::DeviceType::Meta:
      return fmt::format_to(context.out(), "meta");
  }
  return fmt::format_to(context.out(), "invalid device");
}
