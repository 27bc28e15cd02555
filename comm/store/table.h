#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "comm/error.h"

namespace fsdptrain::comm::store {

// The store cannot do what was asked for, and has changed nothing.
class RejectedError : public CommError {
 public:
  using CommError::CommError;
};

// The keys and values. Keys are never removed. RejectedError where kMaxKeys or kMaxStored would be
// exceeded.
class Table {
 public:
  // Null if the key is not there; valid until the next change.
  const std::string* find(std::string_view key) const;
  void set(std::string_view key, std::string value);
  // Returns the sum. A key that is not there counts as 0; RejectedError if it is not a number
  // (8 bytes), or the sum is none.
  std::int64_t add(std::string_view key, std::int64_t delta);
  // Sets `desired` if the value is `expected`, where nothing means that the key is not there.
  // Whether it did.
  bool compare_set(std::string_view key, const std::optional<std::string>& expected,
                   std::string desired);

  std::size_t num_keys() const { return values_.size(); }
  // Of keys and values.
  std::size_t nbytes() const { return nbytes_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t nbytes_ = 0;
};

}  // namespace fsdptrain::comm::store
