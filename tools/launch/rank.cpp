#include "tools/launch/rank.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "tools/launch/cores.h"
#include "tools/launch/worker_environment.h"

namespace fsdptrain::tools {
namespace {

std::vector<int> cores_of(const RankStart& start) {
  const bool has_cores = start.launch.binds_cores && start.launch.num_ranks > 1;
  return has_cores ? processors_of_rank(start.processors, start.number, start.launch.num_ranks)
                   : std::vector<int>{};
}

bool is_shown(const RankStart& start) {
  return start.launch.shown_ranks.empty() || start.launch.shown_ranks.contains(start.number);
}

// The columns of the terminal, for the rank whose progress is shown there.
std::optional<int> columns_for(const RankStart& start, const Console& console) {
  const int columns = console.terminal_columns();
  const bool shows_progress =
      start.number == 0 && is_shown(start) && columns > 0 &&
      destinations_of(start.launch, start.number).error != Destination::File;
  return shows_progress ? std::optional(columns) : std::nullopt;
}

Worker worker_of(const RankStart& start, int flight, bool is_bound, const Console& console) {
  const LaunchOptions& launch = start.launch;
  const int num_processors = std::max(1, static_cast<int>(start.processors.size()));
  Worker worker{.rank = start.number,
                .num_ranks = launch.num_ranks,
                .num_threads = std::max(1, num_processors / launch.num_ranks),
                .job_id = start.job_id,
                .role = launch.role,
                .master_addr = launch.master_addr,
                .master_port = start.master_port,
                .spec = {.segment = start.segment,
                         .flight = flight,
                         .store = start.store,
                         .is_bound = is_bound,
                         .num_processors = num_processors},
                .terminal_columns = columns_for(start, console)};
  if (!start.folder.empty()) {
    worker.error_file = start.folder / fmt::format("rank-{}.error.json", start.number);
  }
  return worker;
}

// Makes the stream; the end of its pipe for the rank.
Descriptor open_stream(const RankStart& start, StandardStream stream, LaunchedRank& rank,
                       Console& console) {
  const bool is_output = stream == StandardStream::Output;
  const Destinations destinations = destinations_of(start.launch, start.number);
  const Destination destination = is_output ? destinations.output : destinations.error;
  RankStream::Options options{
      .rank = start.number,
      .stream = stream,
      .is_shown = is_shown(start) && destination != Destination::File,
      .shows_progress = !is_output && columns_for(start, console).has_value(),
      .file = {}};
  if (destination != Destination::Console) {
    options.file =
        start.folder / fmt::format("rank-{}.{}", start.number, is_output ? "out" : "err");
  }
  Pipe pipe = make_pipe();
  (is_output ? rank.output : rank.error).emplace(std::move(pipe.read), options, console, rank.last);
  return std::move(pipe.write);
}

}  // namespace

std::unique_ptr<LaunchedRank> start_rank(const RankStart& start, Console& console) {
  auto rank = std::make_unique<LaunchedRank>(
      LaunchedRank{.number = start.number,
                   .ring = comm::FlightMemory::create(
                       {.rank = start.number, .world_size = start.launch.num_ranks})});
  const std::vector<int> cores = cores_of(start);
  const Worker worker = worker_of(start, rank->ring.descriptor(), !cores.empty(), console);
  const Descriptor output = open_stream(start, StandardStream::Output, *rank, console);
  const Descriptor error = open_stream(start, StandardStream::Error, *rank, console);
  rank->process = spawn({.program = start.launch.program,
                         .environment = worker_environment(own_environment(), worker),
                         .inherited = {worker.spec.segment, worker.spec.flight, worker.spec.store},
                         .output = output.number(),
                         .error = error.number(),
                         .cores = cores});
  return rank;
}

}  // namespace fsdptrain::tools
