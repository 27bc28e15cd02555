#pragma once

#include <cstdint>

#include "runtime/base/view.h"

// Bytes from one place to another, of any alignment: what a collective does with data that it
// does not compute with.
namespace fsdptrain::kernels {

enum class Caching : std::uint8_t {
  Normal,  // the destination goes through the caches: somebody reads it soon
  // Past the caches, where the CPU has such stores, else as Normal: a destination larger than the
  // caches is not read before it is written, and displaces nothing.
  Stream,
};

// Both are memory of the host: DeviceError on CUDA, where a stream copies.
//
// The ranges must not overlap: Error if they do, also where they are the same. StorageError for
// null addresses of more than no bytes, ShapeError for a negative number of them. When it returns,
// the bytes are ordered before whatever the calling thread stores next, so that a release store
// hands them to other threads and processes.
void copy_bytes(const Launch& launch, void* to, const void* from, std::int64_t nbytes,
                Caching caching = Caching::Normal);

}  // namespace fsdptrain::kernels
