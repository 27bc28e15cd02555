#pragma once

namespace fsdptrain {

// Processors that this process may run on.
int num_processors();

}  // namespace fsdptrain
