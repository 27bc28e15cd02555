#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/format/manifest.h"

// What a manifest says, for people and for programs.
namespace fsdptrain::tools {

struct ManifestTotals {
  std::int64_t num_elements = 0;
  std::uint64_t nbytes = 0;
};
// Of one plane: elements of all tensors; and bytes of all files.
ManifestTotals totals_of(const checkpoint::Manifest& manifest);

// A dozen lines, and with `all` a table of all tensors behind them.
std::string describe(const std::filesystem::path& path, const checkpoint::Manifest& manifest,
                     bool all);
nlohmann::ordered_json to_json(const std::filesystem::path& path,
                               const checkpoint::Manifest& manifest);

// On one line, its end included. Paths need not be UTF-8: what is none of it is replaced.
std::string to_line(const nlohmann::ordered_json& json);

}  // namespace fsdptrain::tools
