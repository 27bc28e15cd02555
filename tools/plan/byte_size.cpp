#include "tools/plan/byte_size.h"

#include <array>
#include <charconv>
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::tools {
namespace {

struct Unit {
  std::string_view name;
  double nbytes;
};

constexpr std::array<Unit, 10> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"KiB", 0x1p10},
                                       {"MiB", 0x1p20},
                                       {"GiB", 0x1p30},
                                       {"TiB", 0x1p40},
                                       {"KB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12}}};
constexpr double kMost = 0x1p60;

}  // namespace

std::string size_text(std::int64_t nbytes) {
  constexpr std::array<std::string_view, 4> kNames{"KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(nbytes) / 1024;
  std::size_t unit = 0;
  while (size >= 1024 && unit + 1 < kNames.size()) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", size, size < 10 ? 2 : size < 100 ? 1 : 0, kNames[unit]);
}

std::int64_t parse_size(std::string_view text) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  for (const Unit& each : kUnits) {
    if (error == std::errc() && each.name == unit && number >= 0 && number * each.nbytes <= kMost) {
      return static_cast<std::int64_t>(number * each.nbytes);
    }
  }
  fail<ConfigError>(
      "{} is no amount of memory: give a number and a unit, like 80GiB, 512MiB or 24GB",
      in_quotes(text));
}

}  // namespace fsdptrain::tools
