#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "comm/flight/memory.h"
#include "comm/flight/reader.h"
#include "comm/flight/record.h"
#include "comm/tag_names.h"

// The bytes of a ring (docs/comm.md), for who writes and who reads it: a header, then slots.
namespace fsdptrain::comm::flight {

static_assert(std::endian::native == std::endian::little, "rings are little-endian");

inline constexpr std::string_view kMagic = "FSDPFLT1";
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kMaxHost = 64;
// Beyond it a count of records is damage.
inline constexpr std::uint64_t kMaxWritten = std::uint64_t{1} << 62;

// Memory of a ring is read and written as words, each at once.
using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

struct RawHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t record_nbytes;
  std::uint32_t capacity;
  std::uint32_t attempt;
  std::int32_t rank;
  std::int32_t world_size;
  // These words change after the ring was made.
  std::uint64_t pid;
  std::int64_t start_date;
  std::int64_t start_clock;
  std::uint64_t num_written;
  std::array<char, kMaxHost> host;
  // Behind the records; it does not change.
  std::uint32_t names_capacity;
  std::uint32_t padding;
  // Of the names, which are whole up to here. This word changes.
  std::uint64_t names_nbytes;
  std::array<std::byte, 112> zero;
};
static_assert(sizeof(RawHeader) == 256);

inline constexpr std::size_t kPidWord = offsetof(RawHeader, pid) / 8;
inline constexpr std::size_t kStartDateWord = offsetof(RawHeader, start_date) / 8;
inline constexpr std::size_t kStartClockWord = offsetof(RawHeader, start_clock) / 8;
inline constexpr std::size_t kNumWrittenWord = offsetof(RawHeader, num_written) / 8;
inline constexpr std::size_t kNamesWord = offsetof(RawHeader, names_nbytes) / 8;

struct RawRecord {
  // 0: never written; odd: being written.
  std::uint32_t version;
  std::uint32_t group_size;
  std::uint64_t number;
  std::uint8_t op;
  std::uint8_t reduce_op;
  std::uint8_t dtype;
  std::uint8_t state;
  std::int32_t root;
  std::uint64_t group;
  std::array<char, FlightRecord::kMaxGroupName + 1> group_name;
  std::uint64_t sequence;
  std::uint32_t tag_root;
  std::uint32_t tag_group;
  std::uint32_t tag_invocation;
  std::uint8_t tag_direction;
  std::uint8_t flags;
  std::uint16_t deadline;
  std::uint64_t count;
  std::uint64_t nbytes;
  std::int64_t posted;
  std::int64_t started;
  std::int64_t completed;
  std::int64_t longest_wait;
  std::int32_t straggler;
  std::uint32_t call_site;
};
static_assert(sizeof(RawRecord) == 128);

inline constexpr std::size_t kRecordWords = sizeof(RawRecord) / sizeof(Word);
using RecordWords = std::array<std::uint64_t, kRecordWords>;

// Where the names begin.
inline std::size_t nbytes_of_records(std::uint32_t capacity) {
  return sizeof(RawHeader) + capacity * sizeof(RawRecord);
}

// The name of a group of parameters: two numbers of a tag, the length of the text, then the text.
struct RawName {
  std::uint32_t root;
  std::uint32_t group;
  std::uint16_t length;
};
inline constexpr std::size_t kNameHeaderBytes = 10;
inline constexpr std::size_t kMaxName = 255;

// Nothing for bytes that no writer leaves.
std::optional<TagNames> parse_names(std::span<const std::byte> bytes);

RawRecord to_raw(const FlightRecord& record);
// Nothing for bytes that no record has.
std::optional<FlightRecord> from_raw(const RawRecord& raw);

// DataError, with the name of the ring, for a header that is none or does not fit its size.
FlightHeader parse_header(std::string_view name, std::span<const std::byte> bytes,
                          std::uint64_t file_nbytes);

// The header of an open ring, and its size checked.
FlightHeader read_header(int descriptor, std::string_view name);
// Fills `out` from `offset` on; DataError where the ring ends before.
void read_at(int descriptor, std::string_view name, std::uint64_t offset, std::span<std::byte> out);

}  // namespace fsdptrain::comm::flight
