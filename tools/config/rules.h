#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/config/config.h"
#include "tools/config/fields.h"

// The keys of a [[rules]] table, which says what is different about some parameters.
namespace fsdptrain::tools {

using RuleSlot = std::variant<std::string*, std::optional<bool>*, std::optional<double>*,
                              std::optional<std::string>*>;

struct RuleField {
  std::string_view name;
  std::string_view meaning;
  RuleSlot (*slot)(RuleConfig&);
  Allowed allowed = {};

  // A value of the field's type.
  Value kind() const;
  void assign(RuleConfig& rule, const Value& value) const;
};

// `match`, which every rule has, comes first.
std::span<const RuleField> rule_fields();

// Null where there is no such key.
const RuleField* find_rule_field(std::string_view name);
std::string nearest_rule_key(std::string_view name);

// ConfigError, with `place`, for a rule without `match`, one that changes nothing, or one whose
// keys do not fit each other.
void check_rule(const RuleConfig& rule, const std::string& place);

// As [[rules]] tables, what is set.
std::string rules_toml(const std::vector<RuleConfig>& rules);

}  // namespace fsdptrain::tools
