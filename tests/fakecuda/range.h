#pragma once

#include <cstddef>

namespace fsdptrain::fakecuda {

// Bytes that something touches.
struct Range {
  const void* data = nullptr;
  std::size_t nbytes = 0;
};

}  // namespace fsdptrain::fakecuda
