#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/flight/memory.h"
#include "tools/launch/options.h"
#include "tools/launch/rank_output.h"
#include "tools/launch/spawn.h"

namespace fsdptrain::tools {

// One rank: its process, what it prints, and the memory of what it does.
struct LaunchedRank {
  int number = 0;
  comm::FlightMemory ring;
  LastLines last = {};
  StartedProcess process = {};
  std::optional<RankStream> output = std::nullopt;
  std::optional<RankStream> error = std::nullopt;
  bool has_ended = false;
  // Its process group may have members.
  bool has_group = true;
};

// What a rank is started with.
struct RankStart {
  const LaunchOptions& launch;
  const std::string& job_id;
  // Where logs go; empty: nowhere.
  const std::filesystem::path& folder;
  int number = 0;
  int master_port = 0;
  // Of all ranks together.
  const std::vector<int>& processors;
  // Descriptors that the rank inherits: the memory of all, its end of the store.
  int segment = -1;
  int store = -1;
};

// PathError if a log cannot be made, IoError where the system refuses. The console outlives it.
std::unique_ptr<LaunchedRank> start_rank(const RankStart& start, Console& console);

}  // namespace fsdptrain::tools
