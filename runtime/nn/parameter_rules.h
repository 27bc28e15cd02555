#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/nn/parameter.h"

namespace fsdptrain::nn {

// What is different about the parameters whose dotted name matches; what is empty stays as the
// module registered it.
struct ParameterRule {
  // * stands for any text, ? for one character, everything else for itself.
  std::string pattern;
  std::optional<bool> decay = {};
  std::optional<double> lr_scale = {};
  std::optional<bool> trainable = {};
  // That the owner keeps the parameter in; only for what is not trained.
  std::optional<DType> dtype = {};
};

// Whether the whole name fits the pattern.
bool matches(std::string_view pattern, std::string_view name);

// ConfigError that names the pattern, and the nearest names, unless it matches a parameter.
void check_matches(std::string_view pattern, const std::vector<Parameter>& parameters);

// The parameters under the rules; where two set the same, the later one wins. ConfigError for a
// rule that matches nothing, and where rules leave nothing to train.
std::vector<Parameter> with_rules(std::vector<Parameter> parameters,
                                  std::span<const ParameterRule> rules);

}  // namespace fsdptrain::nn
