#include "checkpoint/format/json_records.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

using nlohmann::json;

using Enter = std::function<void(const std::string& member, bool is_array)>;
using Take = std::function<void(const JsonPlace& place, json value)>;

// Takes the JSON events one by one and builds one part at a time.
class RecordParser final : public nlohmann::json_sax<json> {
 public:
  RecordParser(std::string source, const JsonLimits& limits, const Enter& enter, const Take& take)
      : source_(std::move(source)), limits_(limits), enter_(enter), take_(take) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return add(nullptr); }
  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool key(string_t& value) override;
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const json::exception& error) override;

 private:
  // Root: within the document's object. Member: within an array or object of the root.
  enum class Level { Outside, Root, Member };

  // Of the value at hand, for a message: made only where there is one.
  std::string where() const;
  [[noreturn]] void fail_twice(std::string_view name) const;
  bool add(json value);
  bool open(json value);
  bool close();
  // Puts a value where the text has it within the part at hand.
  json* place(json value);
  void finish_part(json value);

  std::string source_;
  JsonLimits limits_;
  const Enter& enter_;
  const Take& take_;
  Level level_ = Level::Outside;
  bool in_array_ = false;  // at level Member
  JsonPlace place_;
  std::unordered_set<std::string> members_;  // of the root, so far
  std::unordered_set<std::string> names_;    // of its object at hand, so far
  json part_;
  std::vector<json*> parents_;     // from the part to the innermost open value
  std::vector<std::string> keys_;  // by the same index; of arrays unused
  std::size_t num_values_ = 0;
};

std::string RecordParser::where() const {
  if (level_ == Level::Outside) {
    return source_;
  }
  std::string text = source_ + ": " + shown(place_.member);
  if (level_ == Level::Member) {
    text += in_array_ ? " " + std::to_string(place_.index) : " " + shown(place_.name);
  }
  return text;
}

void RecordParser::fail_twice(std::string_view name) const {
  fail<DataError>("{}: {} is given twice", where(), shown(name));
}

bool RecordParser::key(string_t& value) {
  if (parents_.empty()) {
    if (!(level_ == Level::Root ? members_ : names_).insert(value).second) {
      fail_twice(value);
    }
    (level_ == Level::Root ? place_.member : place_.name) = value;
    return true;
  }
  if (parents_.back()->contains(value)) {
    fail_twice(value);
  }
  keys_.back() = std::move(value);
  return true;
}

json* RecordParser::place(json value) {
  if (++num_values_ > limits_.num_values) {
    fail<DataError>("{}: it has more than {} values", where(), limits_.num_values);
  }
  if (parents_.empty()) {
    part_ = std::move(value);
    return &part_;
  }
  json& parent = *parents_.back();
  if (parent.is_array()) {
    parent.push_back(std::move(value));
    return &parent.back();
  }
  return &(parent[keys_.back()] = std::move(value));
}

void RecordParser::finish_part(json value) {
  take_(place_, std::move(value));
  num_values_ = 0;
  ++place_.index;
}

bool RecordParser::add(json value) {
  check<DataError>(level_ != Level::Outside, "{}: it must be a JSON object, got {}", source_,
                   value.type_name());
  place(std::move(value));
  if (parents_.empty()) {
    finish_part(std::move(part_));
  }
  return true;
}

bool RecordParser::open(json value) {
  if (level_ == Level::Outside) {
    check<DataError>(value.is_object(), "{}: it must be a JSON object, got an array", source_);
    level_ = Level::Root;
    return true;
  }
  if (level_ == Level::Root) {
    level_ = Level::Member;
    in_array_ = value.is_array();
    place_.index = 0;
    place_.name.clear();
    names_.clear();
    enter_(place_.member, in_array_);
    return true;
  }
  // The root and its member are around the parents.
  if (parents_.size() + 2 >= limits_.depth) {
    fail<DataError>("{}: it is nested deeper than {}", where(), limits_.depth);
  }
  parents_.push_back(place(std::move(value)));
  keys_.emplace_back();
  return true;
}

bool RecordParser::close() {
  if (parents_.empty()) {
    level_ = level_ == Level::Member ? Level::Root : Level::Outside;
    place_.index = 0;
    place_.name.clear();
    return true;
  }
  parents_.pop_back();
  keys_.pop_back();
  if (parents_.empty()) {
    finish_part(std::move(part_));
  }
  return true;
}

bool RecordParser::parse_error(std::size_t position, const std::string& /*last_token*/,
                               const json::exception& error) {
  std::string_view reason = error.what();
  // "[json.exception.parse_error.101] " is the library's own number.
  reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));
  fail<DataError>("{}: it is not JSON at its byte {}: {}", source_, position, shown(reason));
}

}  // namespace

void read_json_records(const std::string& source, std::string_view text, const JsonLimits& limits,
                       const Enter& enter, const Take& take) {
  // The JSON library takes it for the end of the text.
  check<DataError>(text.find('\0') == std::string_view::npos,
                   "{}: it has a zero byte at its byte {}", source, text.find('\0'));
  RecordParser parser(source, limits, enter, take);
  json::sax_parse(text.begin(), text.end(), &parser);
}

}  // namespace fsdptrain::checkpoint
