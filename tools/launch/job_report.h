#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/flight/reader.h"
#include "tools/launch/console.h"
#include "tools/launch/ranks.h"
#include "tools/launch/report.h"
#include "tools/launch/supervisor.h"

namespace fsdptrain::tools {

// What the launcher knows of a job for people: where its ranks are, from their flight rings, and
// how it failed.
class JobReport {
 public:
  // All of these outlive it. `folder` is that of the logs, or empty.
  struct Options {
    LaunchedRanks& ranks;
    const Supervisor& supervisor;
    Console& console;
    const std::filesystem::path& folder;
    const comm::Clock& clock;
  };
  // The job begins now.
  explicit JobReport(const Options& options) : options_(options) {}

  // What the rank is in longer than it can be, if it is (watchdog.h).
  std::optional<std::string> find_overdue(int rank) const;
  // Nobody is to blame before the job has failed, or a deadline has passed. Empty where no rank has
  // joined.
  std::string where_all_are() const;

  // Keeps where all are when the supervisor has its first failure. Whether it was now.
  bool note_failure();
  // At the end, where the job has failed: says how, and leaves that and the rings in the folder.
  void conclude() const;

 private:
  // Nothing where the rank has written over it.
  std::optional<comm::FlightSnapshot> read_ring(int rank, std::uint32_t max_records,
                                                comm::FlightNames names) const;
  FailureFacts facts() const;
  void write_files(const std::string& report) const;

  Options options_;
  comm::Nanoseconds started_at_ = options_.clock.now();
  std::optional<comm::Nanoseconds> failed_at_ = std::nullopt;
  std::string hang_report_ = {};
};

}  // namespace fsdptrain::tools
