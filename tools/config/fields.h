#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/config/config.h"

// The table of configuration keys: it drives parsing, overrides, checks, printing and
// docs/config.md.
namespace fsdptrain::tools {

using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                           std::vector<double>>;

// Where a key's value lies in a Config; the kind of pointer is the key's type.
using Slot = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*,
                          std::vector<double>*>;

// The values that a key takes, or the elements of its list: a range of numbers, a choice of words,
// or text without zero bytes, which would end a path early.
struct Allowed {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool max_excluded = false;
  std::span<const std::string_view> words = {};  // must live as long as the program
  bool empty_excluded = false;                   // of text

  bool contains(const Value& value) const;
  // For people: "at least 1", "one of adamw, sgd"; empty where anything goes.
  std::string text() const;
};

// Of keys of a section and of a rule alike.
inline constexpr std::string_view kDtypeWords[] = {"float32", "bfloat16"};
inline constexpr std::string_view kRecomputeWords[] = {"none", "selective", "full"};

struct Field {
  // A key, written section.name, that must have an effect and one of these values for this field to
  // have an effect. The values must live as long as the program.
  struct Condition {
    std::string_view key;
    std::span<const std::string_view> values;
  };

  std::string_view section;
  std::string_view name;
  std::string_view meaning;  // with its unit; what 0 or "" stands for
  Slot (*slot)(Config&);
  Allowed allowed = {};
  Condition condition = {};

  std::string key() const;
  Value value_in(const Config& config) const;
  void assign(Config& config, const Value& value) const;
  std::string_view type_name() const;
  // Whether the key has an effect in this configuration.
  bool applies(const Config& config) const;
};

// All fields, those of a section side by side.
std::span<const Field> config_fields();

// Null where there is no such key.
const Field* find_field(std::string_view key);

// The known key that is nearest to `key` by edit distance.
std::string nearest_key(std::string_view key);

// What a user may have meant who wrote an unknown key: the nearest one, "train.steps", or where
// there is no section, the nearest of all sections, "a key of [train], like train.steps".
std::string suggestion_for(std::string_view key);

// A value as TOML: text in quotes, a float with a point or an exponent.
std::string toml_text(const Value& value);

// "boolean", "list of strings", ...: the type of a value as docs and messages call it.
std::string_view type_name_of(const Value& value);

}  // namespace fsdptrain::tools
