#include "comm/flight/format.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "comm/ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm::flight {
namespace {

constexpr std::uint8_t kPointToPoint = 1;
constexpr std::uint8_t kCountsVary = 2;

bool is_printable(char c) {
  return c >= ' ' && c <= '~';
}

// Printable characters, then zeros to the end.
template <std::size_t kSize>
bool is_padded_text(const std::array<char, kSize>& text) {
  const auto end = std::ranges::find(text, '\0');
  return std::all_of(text.begin(), end, is_printable) &&
         std::all_of(end, text.end(), [](char c) { return c == '\0'; });
}

template <std::size_t kSize>
std::string_view text_of(const std::array<char, kSize>& text) {
  return {text.begin(), static_cast<std::size_t>(std::ranges::find(text, '\0') - text.begin())};
}

bool is_rank_or_none(std::int32_t rank) {
  return rank >= kNoRank && rank < kMaxWorldSize;
}

bool is_record(const RawRecord& raw) {
  return raw.state >= static_cast<std::uint8_t>(FlightState::Posted) &&
         raw.state <= static_cast<std::uint8_t>(FlightState::Failed) &&
         (raw.flags & ~(kPointToPoint | kCountsVary)) == 0 && raw.group_name.back() == '\0' &&
         is_padded_text(raw.group_name) &&
         raw.group_size <= static_cast<std::uint32_t>(kMaxWorldSize) && is_rank_or_none(raw.root) &&
         is_rank_or_none(raw.straggler);
}

void check_kind(std::string_view name, const RawHeader& raw) {
  const std::string_view magic(raw.magic.data(), raw.magic.size());
  check<DataError>(magic == kMagic, "{}: not a flight ring: it must begin with {}, got {}", name,
                   kMagic, in_quotes(magic));
  check<DataError>(raw.version == kVersion, "{}: the version must be {}, got {}", name, kVersion,
                   raw.version);
  check<DataError>(raw.record_nbytes == sizeof(RawRecord),
                   "{}: a record must have {} bytes, got {}", name, sizeof(RawRecord),
                   raw.record_nbytes);
}

void check_values(std::string_view name, const RawHeader& raw) {
  check<DataError>(raw.world_size >= 1 && raw.world_size <= kMaxWorldSize,
                   "{}: the world size must be 1 to {}, got {}", name, kMaxWorldSize,
                   raw.world_size);
  check<DataError>(raw.rank >= 0 && raw.rank < raw.world_size,
                   "{}: the rank must be below the world size {}, got {}", name, raw.world_size,
                   raw.rank);
  check<DataError>(raw.pid <= INT32_MAX, "{}: the process must be a number of 31 bits, got {}",
                   name, raw.pid);
  check<DataError>(raw.num_written <= kMaxWritten,
                   "{}: the number of records written must be at most {}, got {}", name,
                   kMaxWritten, raw.num_written);
  check<DataError>(is_padded_text(raw.host),
                   "{}: the host must be printable characters, then zeros, got {}", name,
                   in_quotes(std::string_view(raw.host.data(), raw.host.size())));
  check<DataError>(raw.names_nbytes <= raw.names_capacity,
                   "{}: the names must have at most {} bytes, got {}", name, raw.names_capacity,
                   raw.names_nbytes);
  check<DataError>(raw.padding == 0 &&
                       std::ranges::all_of(raw.zero, [](std::byte b) { return b == std::byte{0}; }),
                   "{}: the end of the header must be zero", name);
}

}  // namespace

RawRecord to_raw(const FlightRecord& record) {
  const int flags = (record.is_point_to_point ? kPointToPoint : 0) |  //
                    (record.counts_vary ? kCountsVary : 0);
  return {.version = 0,
          .group_size = record.group_size,
          .number = record.number,
          .op = record.op,
          .reduce_op = record.reduce_op,
          .dtype = record.dtype,
          .state = static_cast<std::uint8_t>(record.state),
          .root = record.root,
          .group = record.group,
          .group_name = record.group_name,
          .sequence = record.sequence,
          .tag_root = record.tag.root,
          .tag_group = record.tag.group,
          .tag_invocation = record.tag.invocation,
          .tag_direction = record.tag.direction,
          .flags = static_cast<std::uint8_t>(flags),
          .deadline = record.deadline,
          .count = record.count,
          .nbytes = record.nbytes,
          .posted = record.posted.count(),
          .started = record.started.count(),
          .completed = record.completed.count(),
          .longest_wait = record.longest_wait.count(),
          .straggler = record.straggler,
          .call_site = record.call_site};
}

std::optional<FlightRecord> from_raw(const RawRecord& raw) {
  if (!is_record(raw)) {
    return std::nullopt;
  }
  FlightRecord record;
  record.number = raw.number;
  record.state = static_cast<FlightState>(raw.state);
  record.posted = Nanoseconds(raw.posted);
  record.started = Nanoseconds(raw.started);
  record.completed = Nanoseconds(raw.completed);
  record.op = raw.op;
  record.reduce_op = raw.reduce_op;
  record.dtype = raw.dtype;
  record.is_point_to_point = (raw.flags & kPointToPoint) != 0;
  record.counts_vary = (raw.flags & kCountsVary) != 0;
  record.deadline = raw.deadline;
  record.root = raw.root;
  record.group = raw.group;
  record.group_size = raw.group_size;
  record.group_name = raw.group_name;
  record.sequence = raw.sequence;
  record.tag = {raw.tag_root, raw.tag_group, raw.tag_invocation, raw.tag_direction};
  record.count = raw.count;
  record.nbytes = raw.nbytes;
  record.longest_wait = Nanoseconds(raw.longest_wait);
  record.straggler = raw.straggler;
  record.call_site = raw.call_site;
  return record;
}

FlightHeader parse_header(std::string_view name, std::span<const std::byte> bytes,
                          std::uint64_t file_nbytes) {
  check<DataError>(bytes.size() >= sizeof(RawHeader),
                   "{}: not a flight ring: its header has {} bytes, got {}", name,
                   sizeof(RawHeader), bytes.size());
  RawHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof(raw));
  check_kind(name, raw);
  check<DataError>(raw.capacity >= 1 && raw.capacity <= kMaxFlightCapacity,
                   "{}: the capacity must be 1 to {} records, got {}", name, kMaxFlightCapacity,
                   raw.capacity);
  check<DataError>(raw.names_capacity <= kMaxFlightNames,
                   "{}: the names must have room for at most {} bytes, got {}", name,
                   kMaxFlightNames, raw.names_capacity);
  const std::uint64_t nbytes = nbytes_of_records(raw.capacity) + raw.names_capacity;
  check<DataError>(file_nbytes == nbytes,
                   "{}: {} records and {} bytes for names make {} bytes, got {}: it was cut off or "
                   "is still being made",
                   name, raw.capacity, raw.names_capacity, nbytes, file_nbytes);
  check_values(name, raw);
  FlightHeader header;
  header.identity = {raw.rank, raw.world_size, raw.attempt, std::string(text_of(raw.host))};
  header.capacity = raw.capacity;
  header.pid = static_cast<int>(raw.pid);
  header.start_date = Nanoseconds(raw.start_date);
  header.start_clock = Nanoseconds(raw.start_clock);
  header.num_written = raw.num_written;
  header.names_capacity = raw.names_capacity;
  header.names_nbytes = raw.names_nbytes;
  return header;
}

std::optional<TagNames> parse_names(std::span<const std::byte> bytes) {
  TagNames names;
  while (!bytes.empty()) {
    RawName raw{};
    const bool has_header = bytes.size() >= kNameHeaderBytes;
    if (has_header) {
      std::memcpy(&raw.root, bytes.data(), 4);
      std::memcpy(&raw.group, bytes.data() + 4, 4);
      std::memcpy(&raw.length, bytes.data() + 8, 2);
      bytes = bytes.subspan(kNameHeaderBytes);
    }
    if (!has_header || raw.length < 1 || raw.length > kMaxName || raw.length > bytes.size()) {
      return std::nullopt;
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), raw.length);
    if (!std::ranges::all_of(text, is_printable)) {
      return std::nullopt;
    }
    names.set(raw.root, raw.group, std::string(text));
    bytes = bytes.subspan(raw.length);
  }
  return names;
}

void read_at(int descriptor, std::string_view name, std::uint64_t offset,
             std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t nbytes = ::pread(descriptor, out.data() + done, out.size() - done,
                                   static_cast<off_t>(offset + done));
    if (nbytes < 0 && errno == EINTR) {
      continue;
    }
    check<IoError>(nbytes >= 0, "{}: reading {} bytes at {} failed: {}", name, out.size(), offset,
                   std::generic_category().message(errno));
    check<DataError>(nbytes > 0, "{}: not a whole flight ring: it ends within {} bytes at {}", name,
                     out.size(), offset);
    done += static_cast<std::size_t>(nbytes);
  }
}

FlightHeader read_header(int descriptor, std::string_view name) {
  struct stat status {};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  check<IoError>(is_known, "{}: reading its status failed: {}", name,
                 std::generic_category().message(errno));
  check<DataError>(S_ISREG(status.st_mode), "{}: not a flight ring: no memory and no file", name);
  std::array<std::byte, sizeof(RawHeader)> bytes{};
  read_at(descriptor, name, 0, bytes);
  return parse_header(name, bytes, static_cast<std::uint64_t>(status.st_size));
}

}  // namespace fsdptrain::comm::flight
