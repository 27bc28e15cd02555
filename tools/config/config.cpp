#include "tools/config/config.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <sstream>
#include <toml++/toml.h>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "tools/config/fields.h"
#include "tools/config/rules.h"
#include "tools/config/text.h"
#include "tools/model/presets.h"

namespace fsdptrain::tools {
namespace {

// One "key = value" of the user, and where it stands: "run.toml:12" or "--set".
struct Assignment {
  const Field* field;
  Value value;
  std::string source;
};

std::string printed(const toml::node& node) {
  if (const auto* value = node.as_string()) {
    return toml_text(**value);
  }
  std::ostringstream text;
  node.visit([&text](const auto& concrete) { text << concrete; });
  return text.str();
}

std::string describe_type(const toml::node& node) {
  std::ostringstream text;
  text << node.type();
  return text.str();
}

// The node as a value of the type of `kind`; a list may be given as its one element. Empty where it
// is of another type.
std::optional<Value> converted(const Value& kind, const toml::node& node) {
  if (std::holds_alternative<bool>(kind) && node.is_boolean()) {
    return **node.as_boolean();
  }
  if (std::holds_alternative<std::int64_t>(kind) && node.is_integer()) {
    return **node.as_integer();
  }
  if (std::holds_alternative<double>(kind) && node.is_integer()) {
    return static_cast<double>(**node.as_integer());
  }
  if (std::holds_alternative<double>(kind) && node.is_floating_point()) {
    return **node.as_floating_point();
  }
  if (std::holds_alternative<std::string>(kind) && node.is_string()) {
    return **node.as_string();
  }
  const auto list_of = [&node]<class T>(const T& element) -> std::optional<Value> {
    std::vector<T> list;
    const auto append = [&](const toml::node& item) {
      const std::optional<Value> value = converted(element, item);
      if (value) {
        list.push_back(std::get<T>(*value));
      }
      return value.has_value();
    };
    const toml::array* const array = node.as_array();
    const bool all_fit =
        array != nullptr ? std::all_of(array->begin(), array->end(), append) : append(node);
    return all_fit ? std::optional<Value>(list) : std::nullopt;
  };
  if (std::holds_alternative<std::vector<std::string>>(kind)) {
    return list_of(std::string());
  }
  if (std::holds_alternative<std::vector<double>>(kind)) {
    return list_of(0.0);
  }
  return std::nullopt;
}

// The node as a value that a field takes; `key` and `meaning` are the field's.
Value accepted(const std::string& key, const Value& kind, const Allowed& allowed,
               std::string_view meaning, const toml::node& node, const std::string& source) {
  const std::optional<Value> value = converted(kind, node);
  check<ConfigError>(value.has_value(), "{}: {} = {}: must be of type {}, got {}: {}", source, key,
                     printed(node), type_name_of(kind), describe_type(node), meaning);
  check<ConfigError>(allowed.contains(*value), "{}: {} = {}: must be {}: {}", source, key,
                     toml_text(*value),
                     allowed.text().empty() ? "without zero bytes" : allowed.text(), meaning);
  return *value;
}

Assignment make_assignment(const std::string& key, const toml::node& node,
                           const std::string& source) {
  const Field* const field = find_field(key);
  check<ConfigError>(field != nullptr, "{}: {} = {}: unknown key: did you mean {}?", source, key,
                     printed(node), suggestion_for(key));
  return {field,
          accepted(key, field->value_in(Config{}), field->allowed, field->meaning, node, source),
          source};
}

toml::table parse_toml(std::string_view toml, const std::string& source) {
  check_config_text(toml, source);
  try {
    return toml::parse(toml, source);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}:{}:{}: not TOML: {}", source, error.source().begin.line,
                      error.source().begin.column, error.description());
  }
}

RuleConfig parse_rule(const toml::node& node, const std::string& source) {
  const auto place = [&source](const toml::node& at) {
    return fmt::format("{}:{}", source, at.source().begin.line);
  };
  const toml::table* const table = node.as_table();
  check<ConfigError>(table != nullptr, "{}: rules = {}: must be tables, each headed by [[rules]]",
                     place(node), printed(node));
  RuleConfig rule;
  for (const auto& [name, value] : *table) {
    const std::string key = fmt::format("rules.{}", name.str());
    const RuleField* const field = find_rule_field(name.str());
    check<ConfigError>(field != nullptr, "{}: {} = {}: unknown key: did you mean rules.{}?",
                       place(value), key, printed(value), nearest_rule_key(name.str()));
    field->assign(
        rule, accepted(key, field->kind(), field->allowed, field->meaning, value, place(value)));
  }
  check_rule(rule, place(node));
  return rule;
}

std::vector<RuleConfig> parse_rules(const toml::node& node, const std::string& source) {
  const toml::array* const array = node.as_array();
  check<ConfigError>(array != nullptr,
                     "{}:{}: [rules]: must be a list of tables, each headed by [[rules]]", source,
                     node.source().begin.line);
  std::vector<RuleConfig> rules;
  for (const toml::node& element : *array) {
    rules.push_back(parse_rule(element, source));
  }
  return rules;
}

void append_section(const std::string& section, const toml::node& content,
                    const std::string& source, std::vector<Assignment>& assignments) {
  const auto place = [&source](const toml::node& node) {
    return fmt::format("{}:{}", source, node.source().begin.line);
  };
  const toml::table* const table = content.as_table();
  check<ConfigError>(table != nullptr,
                     "{}: {} = {}: stands in no section: did you mean {}, under its [section]?",
                     place(content), section, printed(content), suggestion_for(section));
  for (const auto& [name, node] : *table) {
    assignments.push_back(
        make_assignment(fmt::format("{}.{}", section, name.str()), node, place(node)));
  }
  // An unknown section would otherwise pass unseen when it is empty.
  const bool is_known = std::ranges::any_of(
      config_fields(), [&section](const Field& field) { return field.section == section; });
  check<ConfigError>(is_known, "{}: [{}]: unknown section: did you mean the one of {}?",
                     place(content), section, nearest_key(section + "."));
}

// What a file or the command line says.
struct Given {
  std::vector<Assignment> assignments;
  std::vector<RuleConfig> rules;
};

Given parse_file(std::string_view toml, const std::string& source) {
  const toml::table root = parse_toml(toml, source);
  Given given;
  for (const auto& [section, content] : root) {
    if (section.str() == "rules") {
      given.rules = parse_rules(content, source);
    } else {
      append_section(std::string(section.str()), content, source, given.assignments);
    }
  }
  return given;
}

// Text without quotes is taken as it stands where the key is a string.
toml::table parse_override_value(const Field& field, const std::string& value,
                                 const std::string& text) {
  const Value kind = field.value_in(Config{});
  const bool is_list = std::holds_alternative<std::vector<std::string>>(kind);
  const bool is_string = is_list || std::holds_alternative<std::string>(kind);
  const bool is_quoted =
      value.starts_with('"') || value.starts_with('\'') || (is_list && value.starts_with('['));
  const std::string toml = "value = " + (is_string && !is_quoted ? toml_text(value) : value);
  check_config_text(toml, "--set");
  std::string reason;
  try {
    toml::table table = toml::parse(toml);
    if (table.size() == 1) {
      return table;
    }
  } catch (const toml::parse_error& error) {
    reason = fmt::format(": {}", error.description());
  }
  const std::string allowed = field.allowed.text();
  fail<ConfigError>("--set: {}: the value must be one of TOML, like 8, 0.1, true or \"text\"{}{}",
                    text, allowed.empty() ? "" : fmt::format(", {}", allowed), reason);
}

Assignment parse_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  check<ConfigError>(equals != std::string::npos && equals > 0 && equals + 1 < text.size(),
                     "--set: {}: must read section.key=value, like train.steps=100", text);
  const std::string key = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  const Field* const field = find_field(key);
  // Before its value, which may be of any kind.
  check<ConfigError>(field != nullptr, "--set: {} = {}: unknown key: did you mean {}?", key, value,
                     suggestion_for(key));
  const toml::table table = parse_override_value(*field, value, text);
  return make_assignment(key, *table.get("value"), "--set");
}

std::string read_text(const std::filesystem::path& path) {
  try {
    const File file = File::open_for_reading(path);
    // One byte more than allowed is enough to be refused.
    std::string text(std::min<std::uint64_t>(file.size(), kMaxConfigBytes + 1), '\0');
    text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
    return text;
  } catch (const Error& error) {
    fail<ConfigError>("{}: the configuration cannot be read: check its path: {}", path.native(),
                      error.what());
  }
}

bool is_positive(double value) {
  return value > 0;
}

// The user's configuration with the place of every value.
class Resolution {
 public:
  explicit Resolution(Given given) : assignments_(std::move(given.assignments)) {
    config_.rules = std::move(given.rules);
    if (const Assignment* name = last_of("model.name")) {
      preset_ = preset_model(std::get<std::string>(name->value));
      config_.model = preset_.value_or(config_.model);
    }
    for (const Assignment& assignment : assignments_) {
      assignment.field->assign(config_, assignment.value);
    }
  }

  Config checked() const {
    check_preset();
    check_fits();
    for (const Assignment& assignment : assignments_) {
      const Field& field = *assignment.field;
      if (!field.applies(config_)) {
        log_warning("{}: {} has no effect with {}", assignment.source, shown(field.key()),
                    shown(std::string(field.condition.key)));
      }
    }
    return config_;
  }

 private:
  const Assignment* last_of(std::string_view key) const {
    const Assignment* last = nullptr;
    for (const Assignment& assignment : assignments_) {
      last = assignment.field->key() == key ? &assignment : last;
    }
    return last;
  }

  std::string source_of(std::string_view key) const {
    const Assignment* const assignment = last_of(key);
    return assignment != nullptr ? assignment->source : "default";
  }

  // "train.steps = 5"
  std::string shown(const std::string& key) const {
    return fmt::format("{} = {}", key, toml_text(find_field(key)->value_in(config_)));
  }

  void check_preset() const {
    if (!preset_) {
      return;
    }
    Config fixed = config_;
    fixed.model = *preset_;
    for (const Field& field : config_fields()) {
      const bool is_free = field.section != "model" || field.name == "dropout" ||
                           field.name == "window" || field.name == "init_from";
      check<ConfigError>(is_free || field.value_in(config_) == field.value_in(fixed),
                         "{}: {}: model.name = \"{}\" fixes it at {}: remove the key, or set "
                         "model.name = \"{}\" and all sizes",
                         source_of(field.key()), shown(field.key()), preset_->name,
                         toml_text(field.value_in(fixed)), family_of(preset_->name));
    }
  }

  void check_pair(bool holds, const std::string& key, std::string_view must,
                  const std::string& other) const {
    check<ConfigError>(holds, "{}: {}: must {} {} ({}): change one of the two", source_of(key),
                       shown(key), must, shown(other), source_of(other));
  }

  void check_fits() const {
    const Config& c = config_;
    check_pair(c.model.head_dim != 0 || c.model.embed_dim % c.model.num_heads == 0,
               "model.embed_dim", "be a multiple of", "model.num_heads");
    check_pair(c.model.num_kv_heads == 0 || c.model.num_heads % c.model.num_kv_heads == 0,
               "model.num_heads", "be a multiple of", "model.num_kv_heads");
    check_pair(c.model.rope_low_freq_factor < c.model.rope_high_freq_factor,
               "model.rope_low_freq_factor", "be less than", "model.rope_high_freq_factor");
    check_pair(c.data.weights.empty() || c.data.weights.size() == c.data.tokens.size(),
               "data.weights", "have as many elements as", "data.tokens");
    check_pair(c.data.weights.empty() || std::ranges::any_of(c.data.weights, is_positive),
               "data.weights", "have a positive element, for", "data.tokens");
    check_pair(c.train.global_batch % c.train.micro_batch == 0, "train.global_batch",
               "be a multiple of", "train.micro_batch");
    check_pair(c.train.seq_len <= c.model.max_seq_len, "train.seq_len", "be at most",
               "model.max_seq_len");
    check_pair(c.schedule.warmup_steps <= c.train.steps, "schedule.warmup_steps", "be at most",
               "train.steps");
  }

  std::vector<Assignment> assignments_;
  std::optional<ModelConfig> preset_;
  Config config_;
};

}  // namespace

Config parse_config(std::string_view toml, const std::string& source,
                    std::span<const std::string> overrides) {
  Given given = parse_file(toml, source);
  for (const std::string& override_text : overrides) {
    given.assignments.push_back(parse_override(override_text));
  }
  return Resolution(std::move(given)).checked();
}

Config load_config(const std::optional<std::filesystem::path>& file,
                   std::span<const std::string> overrides) {
  if (!file) {
    return parse_config("", "", overrides);
  }
  const std::string toml = read_text(*file);
  return parse_config(toml, file->native(), overrides);
}

void require_key(const Config& config, std::string_view key) {
  const Field* const found = find_field(key);
  check(found != nullptr, "config: {} is no key of this program", key);
  const Field& field = *found;
  check<ConfigError>(!std::get<std::vector<std::string>>(field.value_in(config)).empty(),
                     "{}: must be given, in the file or by --set {}=...: {}", key, key,
                     field.meaning);
}

}  // namespace fsdptrain::tools
