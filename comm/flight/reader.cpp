#include "comm/flight/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "comm/flight/format.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace fsdptrain::comm {
namespace {

using flight::RawRecord;

constexpr int kTries = 4;

// Reads slots of an open ring, each until nobody wrote in it meanwhile.
class SlotReader {
 public:
  SlotReader(int descriptor, std::string_view name) : descriptor_(descriptor), name_(name) {}

  std::uint64_t num_written() const { return word_at(flight::kNumWrittenWord * 8); }

  // Nothing if the slot is being written whenever one looks, or was left so.
  std::optional<RawRecord> read(std::uint32_t slot) const {
    const std::uint64_t offset = sizeof(flight::RawHeader) + slot * sizeof(RawRecord);
    for (int i = 0; i < kTries; ++i) {
      const std::uint64_t before = word_at(offset);
      std::array<std::byte, sizeof(RawRecord)> bytes{};
      flight::read_at(descriptor_, name_, offset, bytes);
      const auto raw = std::bit_cast<RawRecord>(bytes);
      const bool is_open = (before & 1) != 0;
      if (!is_open && raw.version == static_cast<std::uint32_t>(before) &&
          word_at(offset) == before) {
        return raw;
      }
    }
    return std::nullopt;
  }

 private:
  std::uint64_t word_at(std::uint64_t offset) const {
    std::uint64_t word = 0;
    flight::read_at(descriptor_, name_, offset, std::as_writable_bytes(std::span(&word, 1)));
    return word;
  }

  int descriptor_;
  std::string_view name_;
};

// Records tell where a rank is without them.
void read_names(int descriptor, std::string_view name, FlightSnapshot& ring) {
  std::vector<std::byte> bytes(ring.header.names_nbytes);
  flight::read_at(descriptor, name, flight::nbytes_of_records(ring.header.capacity), bytes);
  std::optional<TagNames> names = flight::parse_names(bytes);
  ring.has_damaged_names = !names.has_value();
  ring.names = std::move(names).value_or(TagNames{});
}

}  // namespace

FlightSnapshot read_flight_ring(int descriptor, std::string_view name) {
  return read_newest_records(descriptor, name, std::numeric_limits<std::uint32_t>::max(),
                             FlightNames::Read);
}

FlightSnapshot read_newest_records(int descriptor, std::string_view name, std::uint32_t max_records,
                                   FlightNames names) {
  FlightSnapshot ring;
  ring.header = flight::read_header(descriptor, name);
  const std::uint32_t capacity = ring.header.capacity;
  if (names == FlightNames::Read) {
    read_names(descriptor, name, ring);
  }
  const SlotReader reader(descriptor, name);
  const std::uint32_t num_slots = std::min(capacity, std::max(max_records, 1U));
  const std::uint64_t oldest =
      ring.header.num_written - std::min<std::uint64_t>(ring.header.num_written, num_slots);
  const std::uint64_t first = ring.header.num_written + capacity - num_slots;
  for (std::uint32_t i = 0; i < num_slots; ++i) {
    const auto slot = static_cast<std::uint32_t>((first + i) % capacity);
    const std::optional<RawRecord> raw = reader.read(slot);
    if (raw && raw->version == 0) {
      continue;
    }
    std::optional<FlightRecord> record = raw ? flight::from_raw(*raw) : std::nullopt;
    // A writer may be one record ahead of its count.
    if (record && record->number % capacity == slot && record->number >= oldest &&
        record->number <= reader.num_written()) {
      ring.records.push_back(*record);
    } else {
      ++ring.num_torn;
    }
  }
  std::ranges::sort(ring.records, {}, &FlightRecord::number);
  const std::uint64_t next = ring.records.empty() ? 0 : ring.records.back().number + 1;
  ring.header.num_written = std::max(reader.num_written(), next);
  const std::uint64_t num_known = ring.records.size() + ring.num_torn;
  ring.num_lost = ring.header.num_written - std::min(ring.header.num_written, num_known);
  return ring;
}

FlightSnapshot read_flight_ring(const std::filesystem::path& path) {
  const File file = File::open_for_reading(path);
  return read_flight_ring(file.descriptor(), path.native());
}

}  // namespace fsdptrain::comm
