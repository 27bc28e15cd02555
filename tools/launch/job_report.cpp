#include "tools/launch/job_report.h"

#include <chrono>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "comm/flight/hang_report.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/launch/flight_files.h"
#include "tools/launch/watchdog.h"

namespace fsdptrain::tools {
namespace {

using comm::FlightNames;

// What a rank can be in is among its newest records.
constexpr std::uint32_t kRecordsToWatch = 64;
constexpr std::uint32_t kRecordsToReport = 512;

}  // namespace

std::optional<comm::FlightSnapshot> JobReport::read_ring(int rank, std::uint32_t max_records,
                                                         FlightNames names) const {
  try {
    comm::FlightSnapshot ring =
        comm::read_newest_records(options_.ranks.rank(rank).ring.descriptor(),
                                  fmt::format("the ring of rank {}", rank), max_records, names);
    const comm::FlightIdentity& identity = ring.header.identity;
    const bool is_its = identity.rank == rank && identity.world_size == options_.ranks.size();
    return is_its ? std::optional(std::move(ring)) : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::optional<std::string> JobReport::find_overdue(int rank) const {
  const auto look = [&](FlightNames names) {
    const auto ring = read_ring(rank, kRecordsToWatch, names);
    // The clock of all ranks of a host, whatever this one's is.
    return ring ? tools::find_overdue(*ring, comm::monotonic_clock().now()) : std::nullopt;
  };
  // Names are long, and wanted only for the text.
  return look(FlightNames::LeftOut) ? look(FlightNames::Read) : std::nullopt;
}

std::string JobReport::where_all_are() const {
  std::vector<comm::FlightSnapshot> rings;
  bool is_any_written = false;
  for (int rank = 0; rank < options_.ranks.size(); ++rank) {
    if (const auto ring = read_ring(rank, kRecordsToReport, FlightNames::Read)) {
      rings.push_back(*ring);
      is_any_written = is_any_written || ring->header.pid != 0;
    }
  }
  if (!is_any_written) {
    return "";
  }
  const bool has_failed = options_.supervisor.failure().has_value();
  return comm::describe_hang(rings, {.now = std::chrono::system_clock::now().time_since_epoch(),
                                     .is_live = !has_failed,
                                     .is_explained = has_failed})
      .text;
}

bool JobReport::note_failure() {
  if (failed_at_ || !options_.supervisor.failure()) {
    return false;
  }
  failed_at_ = options_.clock.now();
  hang_report_ = where_all_are();
  return true;
}

void JobReport::conclude() const {
  if (!options_.supervisor.failure() || options_.supervisor.has_not_started()) {
    return;
  }
  const std::string report = failure_report(facts());
  options_.console.text(report);
  write_files(report);
}

FailureFacts JobReport::facts() const {
  const RankFailure& failure = *options_.supervisor.failure();
  FailureFacts facts{.failure = failure,
                     .when = failed_at_.value_or(started_at_) - started_at_,
                     .last_lines = options_.ranks.rank(failure.rank).last.lines(),
                     .ends = {},
                     .hang_report = hang_report_};
  for (int rank = 0; rank < options_.ranks.size(); ++rank) {
    facts.ends.push_back(options_.supervisor.end_of(rank));
  }
  return facts;
}

void JobReport::write_files(const std::string& report) const {
  const std::filesystem::path& folder = options_.folder;
  if (folder.empty()) {
    return;
  }
  try {
    write_text(report, folder / "report.txt");
    make_folders(folder / "flight");
    for (int rank = 0; rank < options_.ranks.size(); ++rank) {
      write_ring(options_.ranks.rank(rank).ring.descriptor(),
                 folder / "flight" / fmt::format("rank-{}.ring", rank));
    }
  } catch (const IoError& error) {
    options_.console.note(error.what());
  }
}

}  // namespace fsdptrain::tools
