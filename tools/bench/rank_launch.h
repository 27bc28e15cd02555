#pragma once

#include <optional>
#include <string>
#include <vector>

// A benchmark whose ranks are processes of `fsdptrain launch`, and print as if they were none.
namespace fsdptrain::tools {

// Standard streams of the command, by the numbers that its ranks inherit them under.
struct RankStreams {
  int input = -1;
  int output = -1;
};

// "3,4"
std::string to_text(const RankStreams& streams);
// ConfigError for anything else.
RankStreams parse_rank_streams(const std::string& text);

// Duplicates of this process's, which programs that it becomes inherit. IoError.
RankStreams inherit_streams();
// In a rank: rank 0 reads and prints where the command would, in the place of what its launcher
// gave it; the others close them.
void take_streams(const RankStreams& streams, int rank);

// Becomes `fsdptrain launch` of this program with these words, `num_ranks` times. Returns never:
// IoError.
[[noreturn]] void become_launcher(int num_ranks, const std::vector<std::string>& words);

}  // namespace fsdptrain::tools
