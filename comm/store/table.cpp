#include "comm/store/table.h"

#include "comm/store/messages.h"
#include "comm/store/protocol.h"

namespace fsdptrain::comm::store {

const std::string* Table::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void Table::set(std::string_view key, std::string value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  check<RejectedError>(!is_new || values_.size() < kMaxKeys,
                       "store: at most {} keys fit, '{}' would be one more", kMaxKeys, key);
  const std::size_t freed = is_new ? 0 : key.size() + found->second.size();
  const std::size_t total = nbytes_ - freed + key.size() + value.size();
  check<RejectedError>(total <= kMaxStored,
                       "store: keys and values may take {} bytes, with '{}' they would take {}",
                       kMaxStored, key, total);
  nbytes_ = total;
  if (is_new) {
    values_.emplace(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

std::int64_t Table::add(std::string_view key, std::int64_t delta) {
  std::int64_t number = 0;
  if (const std::string* value = find(key)) {
    const std::optional<std::int64_t> old = decode_number(*value);
    check<RejectedError>(old.has_value(), "store: add needs a number of 8 bytes, '{}' has {} bytes",
                         key, value->size());
    number = *old;
  }
  std::int64_t sum = 0;
  check<RejectedError>(!__builtin_add_overflow(number, delta, &sum),
                       "store: '{}' is {}, adding {} leaves 64 bits", key, number, delta);
  set(key, encode_number(sum));
  return sum;
}

bool Table::compare_set(std::string_view key, const std::optional<std::string>& expected,
                        std::string desired) {
  const std::string* value = find(key);
  const bool matches = value == nullptr ? !expected : expected && *value == *expected;
  if (matches) {
    set(key, std::move(desired));
  }
  return matches;
}

}  // namespace fsdptrain::comm::store
