#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/flight/hang_report.h"
#include "comm/flight/reader.h"
#include "comm/flight/table.h"
#include "comm/flight/text.h"
#include "runtime/base/error.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::vector<std::string> files;
  std::size_t count = 8;
  bool json = false;
};

// Rings of files are of a time that has passed: ages count from the last thing that they tell.
// Those of processes, by /proc/PID/fd/N, from now.
struct Moment {
  comm::Nanoseconds date{};
  bool is_now = false;
};

Moment moment_of(const std::vector<std::string>& files,
                 const std::vector<comm::FlightSnapshot>& rings) {
  for (const std::string& file : files) {
    if (file.starts_with("/proc/")) {
      return {std::chrono::system_clock::now().time_since_epoch(), true};
    }
  }
  return {comm::last_moment(rings), false};
}

std::string date_text(comm::Nanoseconds date) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(date).count();
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string as_text(const Arguments& arguments, const std::vector<comm::FlightSnapshot>& rings,
                    const Moment& moment) {
  std::string text =
      comm::describe_hang(rings, {.now = moment.date, .is_live = moment.is_now}).text;
  text += fmt::format("\nthe last operations of each rank, seen from {}{}:\n",
                      moment.is_now ? "now, " : "the last that any of them noted, ",
                      date_text(moment.date));
  for (const comm::FlightSnapshot& ring : rings) {
    text += "\n" + comm::rank_line(ring, moment.date) +
            comm::operations_table(ring, moment.date, arguments.count);
  }
  return text;
}

Json as_json(const comm::FlightRecord& record, const comm::FlightSnapshot& ring,
             const Moment& moment) {
  const auto age = [&](comm::Nanoseconds time) {
    return time.count() == 0 ? Json() : Json(comm::age_of(ring.header, time, moment.date));
  };
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const bool has_straggler = record.straggler != comm::kNoRank;
  return {
      {"number", record.number},
      {"state", comm::name_of(record.state)},
      {"op", comm::op_text(record)},
      {"group", record.group_name_text()},
      {"sequence", record.sequence},
      {"name", or_null(std::string(ring.names.find(record.tag)))},
      {"tag",
       {{"root", record.tag.root},
        {"group", record.tag.group},
        {"invocation", record.tag.invocation},
        {"text", comm::tag_text(record.tag)}}},
      {"dtype", or_null(comm::dtype_text(record))},
      {"count", record.count},
      {"bytes", record.nbytes},
      {"reduce_op", or_null(comm::reduce_op_text(record))},
      {"root", record.root == comm::kNoRank ? Json() : Json(record.root)},
      {"deadline_seconds", record.deadline == comm::kNoDeadline ? Json() : Json(record.deadline)},
      {"posted_seconds_ago", age(record.posted)},
      {"started_seconds_ago", age(record.started)},
      {"ended_seconds_ago", age(record.completed)},
      {"longest_wait_seconds", static_cast<double>(record.longest_wait.count()) * 1e-9},
      {"longest_wait_for", has_straggler ? Json(record.straggler) : Json()}};
}

std::string as_json(const Arguments& arguments, const std::vector<comm::FlightSnapshot>& rings,
                    const Moment& moment) {
  const comm::HangReport report =
      comm::describe_hang(rings, {.now = moment.date, .is_live = moment.is_now});
  Json ranks = Json::array();
  for (const comm::FlightSnapshot& ring : rings) {
    Json operations = Json::array();
    for (const comm::FlightRecord* record : comm::telling_records(ring, arguments.count)) {
      operations.push_back(as_json(*record, ring, moment));
    }
    const comm::FlightRecord* const open = comm::open_operation(ring);
    ranks.push_back({{"rank", ring.header.identity.rank},
                     {"host", ring.header.identity.host},
                     {"process", ring.header.pid},
                     {"written", ring.header.num_written},
                     {"lost", ring.num_lost},
                     {"torn", ring.num_torn},
                     {"damaged_names", ring.has_damaged_names},
                     {"waits_in", open == nullptr ? Json() : as_json(*open, ring, moment)},
                     {"operations", std::move(operations)}});
  }
  const int world_size = rings.front().header.identity.world_size;
  Json missing = Json::array();
  for (int rank = 0; rank < world_size; ++rank) {
    if (std::ranges::none_of(rings, [rank](const comm::FlightSnapshot& ring) {
          return ring.header.identity.rank == rank;
        })) {
      missing.push_back(rank);
    }
  }
  return Json{{"world_size", world_size},       {"attempt", rings.front().header.identity.attempt},
              {"date", date_text(moment.date)}, {"culprits", report.culprits},
              {"missing", std::move(missing)},  {"report", report.text},
              {"ranks", std::move(ranks)}}
             .dump(2) +
         "\n";
}

int show(const Arguments& arguments) {
  std::vector<comm::FlightSnapshot> rings;
  for (const std::string& file : arguments.files) {
    rings.push_back(comm::read_flight_ring(std::filesystem::path(file)));
  }
  std::ranges::stable_sort(
      rings, {}, [](const comm::FlightSnapshot& ring) { return ring.header.identity.rank; });
  const Moment moment = moment_of(arguments.files, rings);
  print_now(arguments.json ? as_json(arguments, rings, moment) : as_text(arguments, rings, moment));
  return static_cast<int>(ExitCode::Done);
}

Command add_show_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("show", "Say who waits for whom, from the rings of the ranks");
  command->footer(
      R"(First who is to blame, and why; then each rank: the operation that it waits in or gave up in,
and those before and behind. A launcher writes the rings of a job that failed into its log folder;
while a job runs, a ring is /proc/PID/fd/N of its process. The ring of a rank that is not given is
missed, and said to be. docs/when-it-hangs.md reads the answer with you.

Examples:
  fsdptrain flight show logs/JOB/flight/*.ring
  fsdptrain flight show --json logs/JOB/flight/*.ring)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("files", arguments->files, "rings, of one job")
      ->required()
      ->type_name("FILE");
  command->add_option("--last", arguments->count, "operations to show of each rank")
      ->check(whole_number(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "one JSON object instead of text");
  return {command, [arguments] { return show(*arguments); }};
}

}  // namespace

Command add_flight_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("flight", "Look into the flight recorders of ranks that hang or failed");
  command->require_subcommand(1);
  const std::vector<Command> commands{add_show_command(*command)};
  return {command, [commands] { return run_parsed(commands); }};
}

}  // namespace fsdptrain::tools
