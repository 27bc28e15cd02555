#include "tools/bench/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tools/build_info.h"
#include "tools/machine/host.h"

namespace fsdptrain::tools {
namespace {

constexpr int kBarWidth = 20;

// Full at 1.
std::string bar_of(double share) {
  const int filled = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kBarWidth));
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) {
    bar += i < filled ? "█" : "·";
  }
  return bar;
}

std::string number(double value) {
  const double size = std::abs(value);
  return size >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string bound_of(const Figure& figure) {
  if (!figure.floor && !figure.ceiling) {
    return "";
  }
  std::string text;
  if (figure.floor) {
    text += fmt::format("  at least {}", number(*figure.floor));
  }
  if (figure.ceiling) {
    text += fmt::format("  at most {}", number(*figure.ceiling));
  }
  return text + (within_bounds(figure) ? ": yes" : ": NO");
}

}  // namespace

bool within_bounds(const Figure& figure) {
  return std::isfinite(figure.value) && (!figure.floor || figure.value >= *figure.floor) &&
         (!figure.ceiling || figure.value <= *figure.ceiling);
}

Report new_report(std::string bench) {
  RankContext& context = current_context();
  return {std::move(bench),         std::string(build_info().commit),
          machine_name(),           std::string(name_of(context.isa())),
          context.pool().threads(), {}};
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  for (const Figure& figure : report.figures) {
    check(std::isfinite(figure.value), "bench: the figure {} is {}", figure.name, figure.value);
    nlohmann::ordered_json entry{
        {"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}};
    if (figure.floor) {
      entry["floor"] = *figure.floor;
    }
    if (figure.ceiling) {
      entry["ceiling"] = *figure.ceiling;
    }
    figures.push_back(std::move(entry));
  }
  nlohmann::ordered_json object{{"bench", report.bench},     {"commit", report.commit},
                                {"machine", report.machine}, {"isa", report.isa},
                                {"threads", report.threads}, {"figures", figures}};
  if (!report.warnings.empty()) {
    object["warnings"] = report.warnings;
  }
  return object.dump();
}

std::string to_table(const Report& report) {
  std::string text = fmt::format("{}: {}, isa {}, {} threads, commit {}\n", report.bench,
                                 report.machine, report.isa, report.threads, report.commit);
  std::size_t width = 0;
  for (const Figure& figure : report.figures) {
    width = std::max(width, figure.name.size());
  }
  for (const Figure& figure : report.figures) {
    const bool is_share = figure.unit.starts_with("share");
    text += fmt::format("  {:{}}  {:>9} {:10}{}{}\n", figure.name, width, number(figure.value),
                        figure.unit, is_share ? "  " + bar_of(figure.value) : "", bound_of(figure));
  }
  for (const std::string& warning : report.warnings) {
    text += fmt::format("  warning: {}\n", warning);
  }
  return text;
}

void print_report(const Report& report, bool json) {
  std::fputs((json ? to_json(report) + "\n" : to_table(report)).c_str(), stdout);
}

}  // namespace fsdptrain::tools
