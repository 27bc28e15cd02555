#include <nlohmann/json.hpp>

#include "runtime/base/isa.h"
#include "tools/plan/plan_report.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::ordered_json;

Json memory_of(const PlanReport& report) {
  const MemoryPlan& plan = report.plan;
  Json items = Json::array();
  for (const PlannedItem& item : plan.items) {
    items.push_back(
        {{"name", item.name}, {"held_bytes", item.held}, {"at_peak_bytes", item.at_peak}});
  }
  Json categories = Json::object();
  for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
    categories[std::string(name_of(static_cast<MemoryCategory>(category)))] =
        plan.memory.peak[category];
  }
  Json phases = Json::array();
  for (const StepPhase& phase : plan.phases) {
    phases.push_back({{"name", phase.name}, {"peak_bytes", phase.memory.peak_total}});
  }
  return {{"peak_bytes", plan.peak()},
          {"peak_phase", plan.peak_phase},
          {"kept_bytes", plan.kept()},
          {"peer_pages_bytes", plan.peer_pages},
          {"checkpoint_copy_bytes", plan.staging},
          {"process_base_bytes", report.process},
          {"needed_bytes", report.needed()},
          {"items", items},
          {"peak_bytes_by_category", categories},
          {"phases", phases}};
}

Json traffic_of(const MemoryPlan& plan) {
  Json all = Json::array();
  for (const PlannedTraffic& each : plan.traffic) {
    all.push_back({{"collective", each.collective},
                   {"direction", each.direction},
                   {"calls", each.calls},
                   {"sent_bytes", each.bytes_sent},
                   {"received_bytes", each.bytes_received}});
  }
  return all;
}

Json slots_of(const MemoryPlan& plan) {
  Json all = Json::array();
  for (const PlannedSlots& slots : plan.slots) {
    all.push_back(
        {{"slot_bytes", slots.slot_nbytes}, {"slots", slots.num_slots}, {"users", slots.users}});
  }
  return all;
}

Json padding_of(const MemoryPlan& plan) {
  Json units = Json::array();
  for (const UnitPadding& unit : plan.padding) {
    units.push_back({{"unit", unit.unit}, {"elements", unit.numel}, {"padding", unit.padding}});
  }
  return {{"percent", total_percent(plan.padding)},
          {"warning", plan.padding_warning},
          {"units", units}};
}

Json limit_of(const PlanReport& report) {
  Json tried = Json::array();
  for (const Suggestion& each : report.suggestions) {
    tried.push_back({{"change", each.change},
                     {"needed_bytes", each.needed},
                     {"fits", each.fits},
                     {"cost", each.cost}});
  }
  return {{"bytes", *report.limit}, {"fits", report.fits()}, {"tried", tried}};
}

}  // namespace

std::string as_json(const PlanReport& report) {
  const Config& config = report.config;
  const MemoryPlan& plan = report.plan;
  Json object{{"model", config.model.name},
              {"device", config.run.device},
              {"world", plan.world},
              {"rank", plan.rank},
              {"isa", name_of(plan.isa)},
              {"threads", plan.threads},
              {"parameters", plan.num_parameters},
              {"micro_batches", plan.num_micro_batches},
              {"memory", memory_of(report)},
              {"traffic", traffic_of(plan)},
              {"slots", slots_of(plan)},
              {"padding", padding_of(plan)}};
  if (report.limit) {
    object["limit"] = limit_of(report);
  }
  return object.dump() + "\n";
}

}  // namespace fsdptrain::tools
