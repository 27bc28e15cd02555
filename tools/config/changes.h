#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/config/config.h"

// What differs between two configurations of one run. The keys have two parts: what decides about
// the numbers that a run computes, which must stay while it goes on, and how and where it is
// operated, which is free: the number of ranks, paths of what it writes, what it says.
namespace fsdptrain::tools {

// Whether a key, or "rules", decides about numbers.
bool is_numeric(std::string_view key);

struct ConfigChange {
  std::string key;
  // As TOML; "nothing" where the key has no effect.
  std::string before;
  std::string now;
};
// Of keys that decide about numbers, in the order of the table; [[rules]] together are "rules".
std::vector<ConfigChange> numeric_changes(const Config& before, const Config& now);
// "optimizer.lr: 0.001 is now 0.002"
std::string to_string(const ConfigChange& change);

// XXH3-128 of the keys and values of each part.
struct ConfigHash {
  std::string numerics;
  std::string operations;
};
ConfigHash hash_of(const Config& config);

// The keys that a user names: "optimizer.lr", "lr" where one section has it, "data" for all of a
// section, "rules". ConfigError beginning with `option` for a name that is none, or several.
std::set<std::string> named_keys(std::span<const std::string> names, std::string_view option);

}  // namespace fsdptrain::tools
