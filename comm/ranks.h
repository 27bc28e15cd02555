#pragma once

#include <span>
#include <string>
#include <string_view>

// Ranks of groups, and in texts of errors and reports.
namespace fsdptrain::comm {

// What a file or a peer says beyond it is refused.
inline constexpr int kMaxWorldSize = 1 << 20;

// "0-2, 5, 8-20 by 4": the ranks in the order given. Equal texts are of equal ranks.
std::string ranks_text(std::span<const int> ranks);

// "rank 3", "ranks 0-2, 5" or "no rank".
std::string named_ranks(std::span<const int> ranks);

// Where `rank` is among the members of a group of this name. ConfigError for ranks that are not of
// the world, twice there, or without it.
int index_in_group(std::string_view name, std::span<const int> ranks, int rank, int world_size);

}  // namespace fsdptrain::comm
