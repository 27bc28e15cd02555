#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/shape.h"

namespace fsdptrain::checkpoint {

// The members of a JSON object, each asked for by kind and name, a literal. What is missing, of
// another kind or outside the limits is a DataError: "<where>: <member> must be ..., got ...".
class RecordReader {
 public:
  RecordReader(std::string where, nlohmann::json record);

  const std::string& where() const { return where_; }
  bool has(const char* member) const { return record_.contains(member); }
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high);
  std::optional<std::int64_t> optional_integer(const char* name, std::int64_t low,
                                               std::int64_t high);
  // UTF-8.
  std::string text(const char* name, std::size_t max_nbytes);
  std::vector<std::int64_t> integers(const char* name, std::size_t max_size, std::int64_t low,
                                     std::int64_t high);
  // A shape whose number of elements is an int64.
  Shape shape(const char* name);
  // Taken out of the record.
  nlohmann::json array(const char* name);
  // DataError where there are members that were not asked for.
  void finish() const;

 private:
  const nlohmann::json& member(const char* member);
  std::int64_t checked_integer(const char* member, const nlohmann::json& value, std::int64_t low,
                               std::int64_t high) const;

  std::string where_;
  nlohmann::json record_;
  std::vector<std::string_view> asked_;
};

// A value of hostile JSON for a message: its text, cut when long.
std::string shown_json(const nlohmann::json& value);

}  // namespace fsdptrain::checkpoint
