#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "comm/clock.h"

// What `fsdptrain launch` was asked for (docs/torchrun-map.md).
namespace fsdptrain::tools {

// The standard streams that an option is about: of all ranks, or of some.
class StreamChoice {
 public:
  // As torchrun has it: 0 none, 1 standard output, 2 standard error, 3 both; or of single ranks,
  // "0:1,2:3". ConfigError naming `option` for anything else.
  static StreamChoice parse(std::string_view option, std::string_view text);

  bool has_output(int rank) const { return (of(rank) & 1) != 0; }
  bool has_error(int rank) const { return (of(rank) & 2) != 0; }
  // The highest rank that is named by itself; -1 for none.
  int last_named() const { return of_rank_.empty() ? -1 : of_rank_.rbegin()->first; }

 private:
  int of(int rank) const {
    const auto found = of_rank_.find(rank);
    return found == of_rank_.end() ? of_all_ : found->second;
  }

  int of_all_ = 0;
  std::map<int, int> of_rank_;
};

// Where one stream of one rank goes.
enum class Destination : std::uint8_t { Console, File, Both };

struct Destinations {
  Destination output = Destination::Console;
  Destination error = Destination::Console;
};

struct LaunchOptions {
  int num_ranks = 1;
  // A path, or a name that is looked up in PATH, then the arguments.
  std::vector<std::string> program;

  std::optional<std::filesystem::path> log_dir;
  std::optional<StreamChoice> tee;
  std::optional<StreamChoice> redirect;
  // On the console; empty: all.
  std::set<int> shown_ranks;

  comm::Nanoseconds shutdown_timeout = std::chrono::seconds(30);
  bool propagate_exit_code = false;
  bool binds_cores = true;

  // For programs of others.
  std::string role = "default";
  std::string master_addr = "127.0.0.1";
  // 0: one that is free.
  int master_port = 0;
};

// ConfigError where options do not fit together or name a rank that does not exist.
void check_options(const LaunchOptions& options);

// With a log folder and no choice, both streams go to both places; without one, to the console.
Destinations destinations_of(const LaunchOptions& options, int rank);

// The value of --nproc-per-node: a number, "gpu" or "cpu" for as many as there are, "auto" for GPUs
// where there are any, else processors. ConfigError for anything else, and for none.
int parse_num_ranks(std::string_view text, int num_gpus, int num_processors);

// GPUs of this host that CUDA_VISIBLE_DEVICES lets through. It asks the driver nothing: `devices`
// is /dev but in tests.
int num_visible_gpus(const std::filesystem::path& devices, const char* visible);

// "0,2"; ConfigError.
std::set<int> parse_ranks(std::string_view option, std::string_view text);

}  // namespace fsdptrain::tools
