#include "checkpoint/format/record_reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {

using nlohmann::json;

std::string shown_json(const json& value) {
  if (value.is_array()) {
    return fmt::format("an array of {}", value.size());
  }
  if (value.is_object()) {
    return fmt::format("an object of {} members", value.size());
  }
  if (value.is_string()) {
    return shown(value.get_ref<const std::string&>());
  }
  return value.dump();
}

RecordReader::RecordReader(std::string where, json record)
    : where_(std::move(where)), record_(std::move(record)) {
  if (!record_.is_object()) {
    fail<DataError>("{} must be an object, got {}", where_, shown_json(record_));
  }
}

std::int64_t RecordReader::checked_integer(const char* member, const json& value, std::int64_t low,
                                           std::int64_t high) const {
  const bool fits = value.is_number_unsigned()
                        ? std::cmp_less_equal(value.get<std::uint64_t>(), high) &&
                              std::cmp_greater_equal(value.get<std::uint64_t>(), low)
                        : value.is_number_integer() && value.get<std::int64_t>() >= low &&
                              value.get<std::int64_t>() <= high;
  if (!fits) {
    fail<DataError>("{}: {} must be an integer from {} to {}, got {}", where_, member, low, high,
                    shown_json(value));
  }
  return value.get<std::int64_t>();
}

const json& RecordReader::member(const char* member) {
  const auto found = record_.find(member);
  check<DataError>(found != record_.end(), "{}: {} is missing", where_, member);
  asked_.emplace_back(member);
  return *found;
}

std::int64_t RecordReader::integer(const char* name, std::int64_t low, std::int64_t high) {
  return checked_integer(name, member(name), low, high);
}

std::optional<std::int64_t> RecordReader::optional_integer(const char* name, std::int64_t low,
                                                           std::int64_t high) {
  return has(name) ? std::optional(integer(name, low, high)) : std::nullopt;
}

std::string RecordReader::text(const char* name, std::size_t max_nbytes) {
  const json& value = member(name);
  if (!value.is_string() || value.get_ref<const std::string&>().size() > max_nbytes) {
    fail<DataError>("{}: {} must be a string of at most {} bytes, got {}", where_, name, max_nbytes,
                    shown_json(value));
  }
  return value.get<std::string>();
}

std::vector<std::int64_t> RecordReader::integers(const char* name, std::size_t max_size,
                                                 std::int64_t low, std::int64_t high) {
  const json& value = member(name);
  if (!value.is_array() || value.size() > max_size) {
    fail<DataError>("{}: {} must be an array of at most {} integers, got {}", where_, name,
                    max_size, shown_json(value));
  }
  std::vector<std::int64_t> integers;
  integers.reserve(value.size());
  for (const json& element : value) {
    integers.push_back(checked_integer(name, element, low, high));
  }
  return integers;
}

Shape RecordReader::shape(const char* name) {
  const std::vector<std::int64_t> sizes =
      integers(name, kMaxDims, 0, std::numeric_limits<std::int64_t>::max());
  std::int64_t numel = 1;
  for (const std::int64_t size : sizes) {
    // As in check_sizes(): a size of 0 does not hide an overflow in the others.
    check<DataError>(!__builtin_mul_overflow(numel, std::max<std::int64_t>(size, 1), &numel),
                     "{}: the number of elements of {} overflows 64 bits", where_, name);
  }
  return Shape(std::span<const std::int64_t>(sizes));
}

json RecordReader::array(const char* name) {
  const json& value = member(name);
  if (!value.is_array()) {
    fail<DataError>("{}: {} must be an array, got {}", where_, name, shown_json(value));
  }
  return std::exchange(record_[name], json());
}

void RecordReader::finish() const {
  for (const auto& [name, value] : record_.items()) {
    if (std::ranges::find(asked_, name) == asked_.end()) {
      fail<DataError>("{}: {} is no member of this version", where_, shown(name));
    }
  }
}

}  // namespace fsdptrain::checkpoint
