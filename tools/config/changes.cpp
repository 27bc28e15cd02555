#include "tools/config/changes.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "checkpoint/format/blocks/digest.h"
#include "runtime/base/error.h"
#include "tools/config/fields.h"
#include "tools/config/rules.h"

namespace fsdptrain::tools {
namespace {

constexpr std::string_view kRules = "rules";

// All keys of these sections are free.
constexpr std::array<std::string_view, 5> kFreeSections{"eval", "mesh", "comm", "checkpoint",
                                                        "log"};
// What is recomputed or gathered again is the same.
constexpr std::array<std::string_view, 8> kFreeKeys{
    "run.dir",          "run.threads",
    "run.device",       "train.recompute",
    "train.non_finite", "train.non_finite_limit",
    "shard.prefetch",   "shard.reshard_after_forward"};

std::string_view section_of(std::string_view key) {
  return key.substr(0, key.find('.'));
}

std::string text_in(const Field& field, const Config& config) {
  return field.applies(config) ? toml_text(field.value_in(config)) : "nothing";
}

// On one line.
std::string rules_text(const Config& config) {
  std::string text = rules_toml(config.rules);
  std::ranges::replace(text, '\n', ' ');
  return text.empty() ? "nothing" : text.substr(text.find_first_not_of(' '));
}

std::vector<std::string> keys_named(const std::string& name) {
  std::vector<std::string> keys;
  for (const Field& field : config_fields()) {
    if (field.key() == name || field.section == name) {
      keys.push_back(field.key());
    }
  }
  if (name == kRules) {
    keys.push_back(name);
  }
  return keys;
}

std::vector<std::string> keys_ending_in(const std::string& name) {
  std::vector<std::string> keys;
  for (const Field& field : config_fields()) {
    if (field.name == name) {
      keys.push_back(field.key());
    }
  }
  return keys;
}

std::string digest_text(const std::string& text) {
  return checkpoint::to_string(checkpoint::digest_of(std::as_bytes(std::span(text))));
}

}  // namespace

bool is_numeric(std::string_view key) {
  return std::ranges::find(kFreeSections, section_of(key)) == kFreeSections.end() &&
         std::ranges::find(kFreeKeys, key) == kFreeKeys.end();
}

std::vector<ConfigChange> numeric_changes(const Config& before, const Config& now) {
  std::vector<ConfigChange> changes;
  const auto compare = [&changes](const std::string& key, const std::string& then,
                                  const std::string& today) {
    if (then != today) {
      changes.push_back({key, then, today});
    }
  };
  for (const Field& field : config_fields()) {
    if (is_numeric(field.key())) {
      compare(field.key(), text_in(field, before), text_in(field, now));
    }
  }
  compare(std::string(kRules), rules_text(before), rules_text(now));
  return changes;
}

std::string to_string(const ConfigChange& change) {
  return fmt::format("{}: {} is now {}", change.key, change.before, change.now);
}

ConfigHash hash_of(const Config& config) {
  std::string numerics;
  std::string operations;
  for (const Field& field : config_fields()) {
    std::string& part = is_numeric(field.key()) ? numerics : operations;
    part += fmt::format("{} = {}\n", field.key(), text_in(field, config));
  }
  numerics += rules_toml(config.rules);
  return {digest_text(numerics), digest_text(operations)};
}

std::set<std::string> named_keys(std::span<const std::string> names, std::string_view option) {
  std::set<std::string> all;
  for (const std::string& name : names) {
    std::vector<std::string> keys = keys_named(name);
    if (keys.empty()) {
      keys = keys_ending_in(name);
      check<ConfigError>(!keys.empty(), "{}: {} is no key of a configuration: did you mean {}?",
                         option, name, nearest_key(name));
      check<ConfigError>(keys.size() == 1, "{}: {} may be {}: give one of them, or several", option,
                         name, fmt::join(keys, " or "));
    }
    all.insert(keys.begin(), keys.end());
  }
  return all;
}

}  // namespace fsdptrain::tools
