#include "runtime/nn/parameter_rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include "runtime/base/error.h"

namespace fsdptrain::nn {
namespace {

constexpr std::size_t kNamesInErrors = 3;

// The edits between a name and the nearest text that the pattern matches.
std::size_t distance(std::string_view pattern, std::string_view name) {
  std::vector<std::size_t> row(name.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char wanted : pattern) {
    const bool any = wanted == '*';
    std::size_t diagonal = row[0];
    row[0] += any ? 0 : 1;
    for (std::size_t j = 0; j < name.size(); ++j) {
      const std::size_t above = row[j + 1];
      const bool fits = any || wanted == '?' || wanted == name[j];
      row[j + 1] =
          std::min({diagonal + (fits ? 0 : 1), row[j] + (any ? 0 : 1), above + (any ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

// "h.12.ln_1.weight" as "h.*.ln_1.weight": what names of different blocks have in common.
std::string without_numbers(std::string_view name) {
  std::string text;
  while (true) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    text += is_number ? "*" : part;
    if (dot == name.size()) {
      return text;
    }
    text += '.';
    name.remove_prefix(dot + 1);
  }
}

std::string nearest_names(std::string_view pattern, const std::vector<Parameter>& parameters) {
  std::set<std::pair<std::size_t, std::string>> ranked;
  std::set<std::string> seen;
  for (const Parameter& parameter : parameters) {
    const std::string name = without_numbers(parameter.name);
    if (seen.insert(name).second) {
      ranked.emplace(distance(pattern, parameter.name), name);
    }
  }
  std::vector<std::string> nearest;
  for (const auto& [edits, name] : ranked) {
    if (nearest.size() < kNamesInErrors) {
      nearest.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(nearest, ", "));
}

void apply(const ParameterRule& rule, ParameterSpec& spec) {
  spec.decay = rule.decay.value_or(spec.decay);
  spec.lr_scale = rule.lr_scale.value_or(spec.lr_scale);
  spec.trainable = rule.trainable.value_or(spec.trainable);
  if (rule.dtype) {
    spec.dtype = rule.dtype;
  }
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  // Where to go on after the last *, if what follows it does not fit here.
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  std::size_t p = 0;
  std::size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void check_matches(std::string_view pattern, const std::vector<Parameter>& parameters) {
  const bool any = std::ranges::any_of(parameters, [pattern](const Parameter& parameter) {
    return matches(pattern, parameter.name);
  });
  check<ConfigError>(any, "parameter rules: \"{}\" matches no parameter: did you mean {}?", pattern,
                     nearest_names(pattern, parameters));
}

std::vector<Parameter> with_rules(std::vector<Parameter> parameters,
                                  std::span<const ParameterRule> rules) {
  std::vector<std::string> freezing;
  for (const ParameterRule& rule : rules) {
    check_matches(rule.pattern, parameters);
    for (Parameter& parameter : parameters) {
      if (matches(rule.pattern, parameter.name)) {
        apply(rule, parameter.spec);
      }
    }
    if (rule.trainable == false) {
      freezing.push_back(fmt::format("\"{}\"", rule.pattern));
    }
  }
  const bool any_trained = std::ranges::any_of(
      parameters, [](const Parameter& parameter) { return parameter.spec.trainable; });
  check<ConfigError>(rules.empty() || parameters.empty() || any_trained,
                     "parameter rules: freeze all {} parameters, by {}: leave one to train, for "
                     "example by a later rule with freeze = false",
                     parameters.size(), fmt::join(freezing, ", "));
  return parameters;
}

}  // namespace fsdptrain::nn
