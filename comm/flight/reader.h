#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "comm/clock.h"
#include "comm/flight/memory.h"
#include "comm/flight/record.h"
#include "comm/tag_names.h"

namespace fsdptrain::comm {

struct FlightHeader {
  FlightIdentity identity;
  std::uint32_t capacity = 0;
  // 0: the memory is there, but no process has written to it yet.
  int pid = 0;
  // When it began to, of the system's date and of its Clock: the difference compares hosts.
  Nanoseconds start_date{0};
  Nanoseconds start_clock{0};
  std::uint64_t num_written = 0;
  // For names, and how many of them are used.
  std::uint32_t names_capacity = 0;
  std::uint64_t names_nbytes = 0;
};

// A ring as it was read, while its rank went on or after it ended.
struct FlightSnapshot {
  FlightHeader header;
  // Oldest first.
  std::vector<FlightRecord> records;
  // Replaced by newer ones.
  std::uint64_t num_lost = 0;
  // Being written while they were read, left half-written by a killed writer, or damaged.
  std::uint64_t num_torn = 0;
  // Of the groups of parameters in tags, as far as the ring had room for them. None where they were
  // not asked for or are damaged.
  TagNames names;
  bool has_damaged_names = false;
};

enum class FlightNames : std::uint8_t { LeftOut, Read };

// From bytes that nobody vouches for: DataError, with `name`, where they are of no ring. The
// descriptor stays open, and its position unused.
FlightSnapshot read_flight_ring(int descriptor, std::string_view name);
// The newest of them: others count as lost.
FlightSnapshot read_newest_records(int descriptor, std::string_view name, std::uint32_t max_records,
                                   FlightNames names = FlightNames::LeftOut);
// Of a file, or of /proc/PID/fd/N.
FlightSnapshot read_flight_ring(const std::filesystem::path& path);

}  // namespace fsdptrain::comm
