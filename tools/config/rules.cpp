#include "tools/config/rules.h"

#include <algorithm>
#include <fmt/format.h>

#include "runtime/base/edit_distance.h"
#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

std::vector<RuleField> make_rule_fields() {
  // One line is one key.
  // clang-format off
  return {
      {"match", "dotted names of parameters (fsdptrain model prints them); * stands for any text, ? for one character", [](RuleConfig& r) -> RuleSlot { return &r.match; }, {.empty_excluded = true}},
      {"decay", "whether optimizer.weight_decay applies", [](RuleConfig& r) -> RuleSlot { return &r.decay; }},
      {"lr_scale", "factor on the learning rate", [](RuleConfig& r) -> RuleSlot { return &r.lr_scale; }, {.min = 0, .max = 1e6}},
      {"freeze", "whether the parameters stay as they are", [](RuleConfig& r) -> RuleSlot { return &r.freeze; }},
      {"dtype", "element type that the parameters are kept in; bfloat16 only with freeze = true", [](RuleConfig& r) -> RuleSlot { return &r.dtype; }, {.words = kDtypeWords}},
      {"recompute", "instead of train.recompute, for the blocks that hold a matching parameter", [](RuleConfig& r) -> RuleSlot { return &r.recompute; }, {.words = kRecomputeWords}},
  };
  // clang-format on
}

}  // namespace

Value RuleField::kind() const {
  struct Kind {
    Value operator()(const std::string*) const { return std::string(); }
    Value operator()(const std::optional<bool>*) const { return false; }
    Value operator()(const std::optional<double>*) const { return 0.0; }
    Value operator()(const std::optional<std::string>*) const { return std::string(); }
  };
  RuleConfig rule;
  return std::visit(Kind{}, slot(rule));
}

void RuleField::assign(RuleConfig& rule, const Value& value) const {
  struct Assign {
    const Value& value;
    void operator()(std::string* member) const { *member = std::get<std::string>(value); }
    void operator()(std::optional<bool>* member) const { *member = std::get<bool>(value); }
    void operator()(std::optional<double>* member) const { *member = std::get<double>(value); }
    void operator()(std::optional<std::string>* member) const {
      *member = std::get<std::string>(value);
    }
  };
  std::visit(Assign{value}, slot(rule));
}

std::span<const RuleField> rule_fields() {
  static const std::vector<RuleField> fields = make_rule_fields();
  return fields;
}

const RuleField* find_rule_field(std::string_view name) {
  const auto fields = rule_fields();
  const auto found = std::ranges::find(fields, name, &RuleField::name);
  return found == fields.end() ? nullptr : &*found;
}

std::string nearest_rule_key(std::string_view name) {
  return std::string(std::ranges::min_element(rule_fields(), {}, [name](const RuleField& field) {
                       return edit_distance(name, field.name);
                     })->name);
}

void check_rule(const RuleConfig& rule, const std::string& place) {
  check<ConfigError>(!rule.match.empty(),
                     "{}: [[rules]]: must have a match, like match = \"*.bias\"", place);
  check<ConfigError>(rule != RuleConfig{.match = rule.match},
                     "{}: [[rules]] match = {}: changes nothing: give one of decay, lr_scale, "
                     "freeze, dtype, recompute",
                     place, toml_text(rule.match));
  check<ConfigError>(
      rule.dtype != "bfloat16" || rule.freeze == true,
      "{}: [[rules]] match = {}: dtype = \"bfloat16\" is for parameters that are not "
      "trained: add freeze = true, or set train.compute_dtype instead",
      place, toml_text(rule.match));
}

std::string rules_toml(const std::vector<RuleConfig>& rules) {
  std::string text;
  for (RuleConfig rule : rules) {
    text += "\n[[rules]]\n";
    for (const RuleField& field : rule_fields()) {
      const auto line = [&](const Value& value) {
        text += fmt::format("{} = {}\n", field.name, toml_text(value));
      };
      std::visit(
          [&]<class T>(const T* member) {
            if constexpr (std::is_same_v<T, std::string>) {
              line(*member);
            } else if (member->has_value()) {
              line(**member);
            }
          },
          field.slot(rule));
    }
  }
  return text;
}

}  // namespace fsdptrain::tools
