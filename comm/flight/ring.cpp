#include "comm/flight/ring.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <unistd.h>
#include <utility>

#include "comm/error.h"
#include "comm/flight/format.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

flight::Word* words_at(std::byte* address) {
  return reinterpret_cast<flight::Word*>(address);
}

flight::Word* slot_of(std::byte* address, std::uint32_t capacity, std::uint64_t number) {
  return words_at(address + sizeof(flight::RawHeader) +
                  number % capacity * sizeof(flight::RawRecord));
}

flight::RawRecord load(const flight::Word* slot) {
  flight::RecordWords words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = slot[i].load(std::memory_order_relaxed);
  }
  return std::bit_cast<flight::RawRecord>(words);
}

// The version is odd from before the first word changes until after the last one has: each word is
// released, so that who sees it sees the odd version, too.
void store(flight::Word* slot, flight::RawRecord raw) {
  raw.version = load(slot).version | 1U;
  flight::RecordWords words = std::bit_cast<flight::RecordWords>(raw);
  slot[0].store(words[0], std::memory_order_relaxed);
  for (std::size_t i = 1; i < words.size(); ++i) {
    slot[i].store(words[i], std::memory_order_release);
  }
  // 0 is that of a slot nobody has written.
  raw.version = std::max(raw.version + 1, 2U);
  words = std::bit_cast<flight::RecordWords>(raw);
  slot[0].store(words[0], std::memory_order_release);
}

int progress_of(FlightState state) {
  switch (state) {
    case FlightState::Posted:
      return 0;
    case FlightState::Started:
      return 1;
    case FlightState::Completed:
    case FlightState::Failed:
      return 2;
  }
  return 2;
}

}  // namespace

FlightRing::FlightRing(FlightMemory memory, const Clock& clock)
    : memory_(std::move(memory)), clock_(&clock) {
  flight::Word* const header = words_at(memory_.address_);
  next_ = header[flight::kNumWrittenWord].load(std::memory_order_acquire);
  const Nanoseconds date = std::chrono::system_clock::now().time_since_epoch();
  // Nobody reads one writer's number with the other's times.
  header[flight::kPidWord].store(0, std::memory_order_release);
  header[flight::kStartDateWord].store(static_cast<std::uint64_t>(date.count()),
                                       std::memory_order_release);
  header[flight::kStartClockWord].store(static_cast<std::uint64_t>(clock.now().count()),
                                        std::memory_order_release);
  header[flight::kPidWord].store(static_cast<std::uint64_t>(::getpid()), std::memory_order_release);
}

std::uint64_t FlightRing::begin(FlightRecord record) {
  record.number = next_;
  record.state = FlightState::Posted;
  record.posted = clock_->now();
  record.started = record.completed = Nanoseconds{0};
  store(slot_of(memory_.address_, memory_.capacity(), next_), flight::to_raw(record));
  ++next_;
  words_at(memory_.address_)[flight::kNumWrittenWord].store(next_, std::memory_order_release);
  return record.number;
}

bool FlightRing::is_there(std::uint64_t number) const {
  check<MisuseError>(number < next_,
                     "flight ring: the number must be below that of the {} records begun, got {}",
                     next_, number);
  return next_ - number <= memory_.capacity();
}

void FlightRing::move_to(std::uint64_t number, FlightState state) {
  if (!is_there(number)) {
    return;
  }
  flight::Word* const slot = slot_of(memory_.address_, memory_.capacity(), number);
  flight::RawRecord raw = load(slot);
  if (progress_of(static_cast<FlightState>(raw.state)) >= progress_of(state)) {
    return;
  }
  raw.state = static_cast<std::uint8_t>(state);
  (state == FlightState::Started ? raw.started : raw.completed) = clock_->now().count();
  store(slot, raw);
}

void FlightRing::started(std::uint64_t number) {
  move_to(number, FlightState::Started);
}

void FlightRing::completed(std::uint64_t number) {
  move_to(number, FlightState::Completed);
}

void FlightRing::failed(std::uint64_t number) {
  move_to(number, FlightState::Failed);
}

void FlightRing::waited(std::uint64_t number, int rank, Nanoseconds duration) {
  if (!is_there(number)) {
    return;
  }
  flight::Word* const slot = slot_of(memory_.address_, memory_.capacity(), number);
  flight::RawRecord raw = load(slot);
  if (duration.count() > raw.longest_wait || raw.straggler == kNoRank) {
    raw.longest_wait = duration.count();
    raw.straggler = rank;
    store(slot, raw);
  }
}

void FlightRing::name_group(std::uint32_t root, std::uint32_t group, std::string_view name) {
  std::string text = printable(name);
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  text.resize(std::min(text.size(), flight::kMaxName));
  flight::Word& end = words_at(memory_.address_)[flight::kNamesWord];
  const std::uint64_t offset = end.load(std::memory_order_relaxed);
  const std::uint64_t nbytes = flight::kNameHeaderBytes + text.size();
  if (text.empty() || offset + nbytes > memory_.names_capacity_) {
    return;
  }
  std::byte* to = memory_.address_ + flight::nbytes_of_records(memory_.capacity()) + offset;
  const auto length = static_cast<std::uint16_t>(text.size());
  std::memcpy(to, &root, sizeof(root));
  std::memcpy(to + 4, &group, sizeof(group));
  std::memcpy(to + 8, &length, sizeof(length));
  std::memcpy(to + flight::kNameHeaderBytes, text.data(), text.size());
  // Readers go no further than this.
  end.store(offset + nbytes, std::memory_order_release);
}

}  // namespace fsdptrain::comm
