#include "kernels/copy_bytes.h"

#include "kernels/cpu/copy_bytes.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

void check_memory(const void* to, const void* from, std::int64_t nbytes) {
  check<StorageError>(to != nullptr && from != nullptr,
                      "copy_bytes: {} bytes need two addresses, got null for {}", nbytes,
                      to == nullptr ? "the destination" : "the source");
  const auto distance = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) -
                                                  reinterpret_cast<std::uintptr_t>(from));
  check(distance >= nbytes || -distance >= nbytes,
        "copy_bytes: the ranges must not overlap, got {} bytes to {} behind their source", nbytes,
        distance);
}

}  // namespace

void copy_bytes(const Launch& launch, void* to, const void* from, std::int64_t nbytes,
                Caching caching) {
  check<ShapeError>(nbytes >= 0, "copy_bytes: the number of bytes must be at least 0, got {}",
                    nbytes);
  if (launch.device.type == DeviceType::Cpu && nbytes > 0) {
    check_memory(to, from, nbytes);
  }
  run_on_host(launch, "copy_bytes",
              [&]<Isa isa>() { cpu::copy_bytes<isa>(launch, to, from, nbytes, caching); });
}

}  // namespace fsdptrain::kernels
