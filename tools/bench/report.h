#pragma once

#include <optional>
#include <string>
#include <vector>

// What a benchmark found, as JSON (docs/performance.md) or as a table.
namespace fsdptrain::tools {

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  // What the value should reach, and what it should not pass.
  std::optional<double> floor = std::nullopt;
  std::optional<double> ceiling = std::nullopt;
};

// Whether the value is a finite number within its bounds.
bool within_bounds(const Figure& figure);

struct Report {
  std::string bench;
  std::string commit;
  std::string machine;
  std::string isa;
  int threads = 0;
  std::vector<Figure> figures;
  // Why the figures are not what they could be.
  std::vector<std::string> warnings = {};
};

// Filled in but for the figures, by the rank context of this thread.
Report new_report(std::string bench);

// One object on one line, with warnings where there are any. Error for a figure that is no finite
// number.
std::string to_json(const Report& report);

// One line per figure: name, value and unit, then a bar for units that are a "share" and, where
// there is a bound, the bound and whether it holds; warnings at the end.
std::string to_table(const Report& report);

// Prints one or the other on standard output.
void print_report(const Report& report, bool json);

}  // namespace fsdptrain::tools
