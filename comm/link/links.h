#pragma once

#include <functional>
#include <memory>

#include "comm/link/link.h"

namespace fsdptrain::comm {

// How a rank reaches the others of its world: for training, and for the control group beside it.
struct Links {
  std::unique_ptr<Link> training;
  std::unique_ptr<Link> control;
};

// Makes the links of a rank, on its thread.
using Connect = std::function<Links(int rank)>;

}  // namespace fsdptrain::comm
