#include "tools/config_print.h"

#include <fmt/format.h>

#include "tools/config_fields.h"

namespace fsdptrain::tools {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Made by `fsdptrain config --markdown` from tools/config_fields.cpp: do not edit. -->

A run is told by a TOML file. Every key has a default except those that say otherwise; an unknown
key, a wrong type and a value out of range are errors. `--set section.key=value` overrides the file,
as often as wanted. `fsdptrain config --config FILE` prints what a file means, defaults included.
Paths are relative to the working directory.
)";

std::string effect_of(const Field& field) {
  if (field.condition.key.empty()) {
    return "";
  }
  return fmt::format("; only with {} = {}", field.condition.key,
                     fmt::join(field.condition.values, " or "));
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
  return text;
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
  return text;
}

}  // namespace fsdptrain::tools
