#include "tools/bench/rank_launch.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::tools {
namespace {

// Above what a launcher's own descriptors begin with.
constexpr int kLeastNumber = 10;

int inherit(int stream) {
  const int number = ::fcntl(stream, F_DUPFD, kLeastNumber);
  check<IoError>(number >= 0, "bench: descriptor {} cannot be duplicated: {}", stream,
                 std::generic_category().message(errno));
  return number;
}

void put(int number, int stream) {
  const bool is_there = ::dup2(number, stream) == stream;
  check<IoError>(is_there, "bench: descriptor {}, which ranks inherit, is not there: {}", number,
                 std::generic_category().message(errno));
}

}  // namespace

std::string to_text(const RankStreams& streams) {
  return fmt::format("{},{}", streams.input, streams.output);
}

RankStreams parse_rank_streams(const std::string& text) {
  const std::string_view all = text;
  const std::size_t comma = all.find(',');
  const auto input = parse_number(all.substr(0, comma));
  const auto output =
      comma == std::string_view::npos ? std::nullopt : parse_number(all.substr(comma + 1));
  check<ConfigError>(input && output,
                     "--rank-streams: two numbers are expected, got {}; only this program gives it",
                     in_quotes(text));
  return {*input, *output};
}

RankStreams inherit_streams() {
  const int input = inherit(STDIN_FILENO);
  return {input, inherit(STDOUT_FILENO)};
}

void take_streams(const RankStreams& streams, int rank) {
  if (rank == 0) {
    put(streams.input, STDIN_FILENO);
    put(streams.output, STDOUT_FILENO);
  }
  ::close(streams.input);
  ::close(streams.output);
}

void become_launcher(int num_ranks, const std::vector<std::string>& words) {
  std::vector<std::string> arguments{
      "fsdptrain", "launch", "--nproc-per-node", std::to_string(num_ranks), "--propagate-exit-code",
      "--"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  fail<IoError>("bench: the launcher does not start: {}", std::generic_category().message(errno));
}

}  // namespace fsdptrain::tools
