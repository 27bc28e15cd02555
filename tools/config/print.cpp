#include "tools/config/print.h"

#include <fmt/format.h>

#include "tools/config/fields.h"
#include "tools/config/rules.h"
#include "tools/model/presets.h"

namespace fsdptrain::tools {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Made by `fsdptrain config --markdown` from tools/config/fields.cpp: do not edit. -->

A run is told by a TOML file. Every key has a default except those that say otherwise; an unknown
key, a wrong type and a value out of range are errors. `--set section.key=value` overrides the file,
as often as wanted. `fsdptrain config --config FILE` prints what a file means, defaults included.
Paths are relative to the working directory.
)";

constexpr std::string_view kRulesIntroduction = R"(
## [[rules]]

Each such table is a rule about the parameters whose name matches; where several match, the last one
that says something counts. A rule that matches no parameter is an error. Rules stand in the file
only.

| key | type | allowed | meaning |
| --- | --- | --- | --- |
)";

std::string effect_of(const Field& field) {
  if (field.condition.key.empty()) {
    return "";
  }
  const std::string values = field.condition.key == "model.name"
                                 ? fmt::format("a {}", family_of(field.condition.values.front()))
                                 : fmt::format("{}", fmt::join(field.condition.values, " or "));
  return fmt::format("; only with {} = {}", field.condition.key, values);
}

}  // namespace

std::string to_toml(const Config& config) {
  std::string text;
  std::string_view section;
  for (const Field& field : config_fields()) {
    if (field.section != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", field.section);
      section = field.section;
    }
    if (field.applies(config)) {
      text += fmt::format("{} = {}\n", field.name, toml_text(field.value_in(config)));
    }
  }
  return text + rules_toml(config.rules);
}

std::string config_reference() {
  std::string text(kIntroduction);
  std::string_view section;
  for (const Field& field : config_fields()) {
    if (field.section != section) {
      text += fmt::format(
          "\n## [{}]\n\n| key | type | default | allowed | meaning |\n"
          "| --- | --- | --- | --- | --- |\n",
          field.section);
      section = field.section;
    }
    text += fmt::format("| `{}` | {} | `{}` | {} | {}{} |\n", field.name, field.type_name(),
                        toml_text(field.value_in(Config{})), field.allowed.text(), field.meaning,
                        effect_of(field));
  }
  text += kRulesIntroduction;
  for (const RuleField& field : rule_fields()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", field.name, type_name_of(field.kind()),
                        field.allowed.text(), field.meaning);
  }
  return text;
}

}  // namespace fsdptrain::tools
