#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <utility>

#include "runtime/base/isa.h"
#include "runtime/base/parse_number.h"
#include "tools/plan/byte_size.h"
#include "tools/plan/plan_report.h"

namespace fsdptrain::tools {
namespace {

// The first column and the last one to the left, those between to the right.
std::string table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t column = 0; column < line.size(); ++column) {
      widths[column] = std::max(widths[column], line[column].size());
    }
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row = fmt::format("  {:<{}}", line.front(), widths.front());
    for (std::size_t column = 1; column + 1 < line.size(); ++column) {
      row += fmt::format("  {:>{}}", line[column], widths[column]);
    }
    row += "  " + line.back();
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

constexpr const char* kNothingLeft =
    "  nothing that this command tries fits: lower train.seq_len or the size of the model, or "
    "raise\n"
    "  train.global_batch, which more ranks can share out\n";

std::string heading(const PlanReport& report) {
  const Config& config = report.config;
  const MemoryPlan& plan = report.plan;
  std::string text = fmt::format("{} on {}: rank {} of {}, {:.2f} M parameters\n",
                                 config.model.name, config.run.device, plan.rank, plan.world,
                                 static_cast<double>(plan.num_parameters) * 1e-6);
  text += fmt::format("a step of a rank is {} x {} x {} tokens, {}, recompute {}\n",
                      plan.num_micro_batches, config.train.micro_batch, config.train.seq_len,
                      config.train.compute_dtype, config.train.recompute);
  text += fmt::format("figures are those of isa {} with {} threads{}\n\n", name_of(plan.isa),
                      plan.threads,
                      config.run.device == "cuda" ? " on a CPU: workspace of CUDA kernels differs, "
                                                    "and its context and NCCL take more"
                                                  : "");
  return text;
}

std::string some_size(std::int64_t nbytes) {
  return nbytes == 0 ? "-" : size_text(nbytes);
}

std::string memory_text(const PlanReport& report) {
  const MemoryPlan& plan = report.plan;
  std::vector<std::vector<std::string>> lines{{"memory", "between steps", "at the peak", ""}};
  std::int64_t held = 0;
  for (const PlannedItem& item : plan.items) {
    held += item.held;
    lines.push_back({item.name, some_size(item.held), some_size(item.at_peak), ""});
  }
  lines.push_back({"in use", size_text(held), size_text(plan.peak()), "in " + plan.peak_phase});
  const bool on_cpu = report.config.run.device == "cpu";
  lines.push_back({"free blocks kept for later", "", some_size(plan.kept() - plan.peak()),
                   on_cpu ? "" : "given back before the device is out of memory"});
  if (!on_cpu && plan.staging > 0) {
    lines.push_back({"copy for checkpoints", "", size_text(plan.staging), "host memory"});
  }
  if (on_cpu) {
    lines.push_back({"peer pages mapped", "", some_size(plan.peer_pages),
                     "if all ranks are processes of one host"});
    lines.push_back({"process base", "", size_text(report.process),
                     "measured: this program before it planned"});
  }
  lines.push_back({"needed", "", size_text(report.needed()), ""});
  return table(lines) + "\n";
}

// "the forward of h.11" as {"the forward of h.", 11}; other names have no number.
struct NumberedPhase {
  std::string before;
  std::optional<std::int64_t> number;
};

NumberedPhase split(const std::string& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return {name.substr(0, digits), parse_number<std::int64_t>(name.substr(digits))};
}

// In time, blocks together.
std::string phases_text(const MemoryPlan& plan) {
  std::vector<std::vector<std::string>> lines{{"most in use in", "", ""}};
  for (std::size_t begin = 0; begin < plan.phases.size();) {
    const NumberedPhase first = split(plan.phases[begin].name);
    std::size_t end = begin + 1;
    std::int64_t lowest = first.number.value_or(0);
    std::int64_t highest = lowest;
    std::int64_t peak = plan.phases[begin].memory.peak_total;
    for (; first.number && end < plan.phases.size(); ++end) {
      const NumberedPhase next = split(plan.phases[end].name);
      if (!next.number || next.before != first.before) {
        break;
      }
      lowest = std::min(lowest, *next.number);
      highest = std::max(highest, *next.number);
      peak = std::max(peak, plan.phases[end].memory.peak_total);
    }
    lines.push_back({end == begin + 1 ? plan.phases[begin].name
                                      : fmt::format("{}{}-{}", first.before, lowest, highest),
                     size_text(peak), ""});
    begin = end;
  }
  return table(lines) + "\n";
}

std::string traffic_text(const MemoryPlan& plan) {
  std::vector<std::vector<std::string>> lines{
      {"traffic of a step", "calls", "sent", "received", ""}};
  for (const PlannedTraffic& each : plan.traffic) {
    lines.push_back({each.collective + (each.direction.empty() ? "" : " of the " + each.direction),
                     fmt::format("{}", each.calls), size_text(each.bytes_sent),
                     size_text(each.bytes_received), ""});
  }
  return table(lines) + "\n";
}

std::string slots_text(const MemoryPlan& plan) {
  if (plan.slots.empty()) {
    return "";
  }
  std::vector<std::vector<std::string>> lines{{"slots", "of", "take turns"}};
  for (const PlannedSlots& slots : plan.slots) {
    lines.push_back({fmt::format("{}", slots.num_slots), size_text(slots.slot_nbytes),
                     fmt::format("{}", fmt::join(slots.users, "; "))});
  }
  return table(lines) + "\n";
}

std::string padding_text(const MemoryPlan& plan) {
  std::string text = fmt::format("padding: {:.2f} %\n", total_percent(plan.padding));
  return plan.padding_warning.empty() ? text : text + "warning: " + plan.padding_warning + "\n";
}

std::string limit_text(const PlanReport& report) {
  if (!report.limit) {
    return "";
  }
  if (report.fits()) {
    return fmt::format("\nfits: {} of {} are left\n", size_text(*report.limit - report.needed()),
                       size_text(*report.limit));
  }
  std::string text =
      fmt::format("\ndoes not fit: {} are needed, {} more than {}\n", size_text(report.needed()),
                  size_text(report.needed() - *report.limit), size_text(*report.limit));
  if (report.suggestions.empty()) {
    return text + kNothingLeft;
  }
  text += "tried, cheapest first:\n";
  for (const Suggestion& each : report.suggestions) {
    text += fmt::format("  {:>8}  {:4}  {}\n", size_text(each.needed), each.fits ? "fits" : "",
                        each.change);
    text += fmt::format("  {:>8}  {:4}  costs: {}\n", "", "", each.cost);
  }
  return report.suggestions.back().fits ? text : text + kNothingLeft;
}

}  // namespace

std::string as_text(const PlanReport& report) {
  return heading(report) + memory_text(report) + phases_text(report.plan) +
         traffic_text(report.plan) + slots_text(report.plan) + padding_text(report.plan) +
         limit_text(report);
}

}  // namespace fsdptrain::tools
