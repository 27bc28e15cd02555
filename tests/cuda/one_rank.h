#pragma once

#include <cstdint>
#include <functional>

#include "comm/world.h"

namespace fsdptrain::testing {

// As on_gpu_in_order(), on the only rank of a world that trains on the device. Linked in with the
// device of gpu.h: fake_rank.cpp, real_rank.cpp.
void on_one_rank(std::uint64_t order, const comm::World::Options& options,
                 const std::function<void(comm::World& world)>& body);

}  // namespace fsdptrain::testing
