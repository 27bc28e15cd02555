#pragma once

#include <vector>

namespace fsdptrain::tools {

// The processors that this process may run on, in order.
std::vector<int> usable_processors();

// Those of one rank: a run of them, as many for each. Empty where there are fewer than ranks: then
// all ranks run anywhere.
std::vector<int> processors_of_rank(const std::vector<int>& all, int rank, int num_ranks);

}  // namespace fsdptrain::tools
