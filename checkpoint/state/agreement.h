#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace fsdptrain::checkpoint {

// Collective over the ranks of a world: does something on each of them, and gives what all of them
// returned, in their order. Where any has thrown, all throw the error of the first of these, of the
// same type where that is one of the library's, with "rank R: " in front; it is an Error else. An
// error of the world comes as it is. One rank speaks to nobody, also where the world has failed,
// and its error comes as it is.
std::vector<std::string> agree_on(comm::World& world, const std::function<std::string()>& action);

}  // namespace fsdptrain::checkpoint
