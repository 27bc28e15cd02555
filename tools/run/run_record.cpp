#include "tools/run/run_record.h"

#include <fmt/format.h>
#include <fstream>
#include <span>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/host_name.h"
#include "runtime/base/rank_context.h"
#include "runtime/base/utc.h"
#include "tools/build_info.h"
#include "tools/config/print.h"
#include "tools/library_versions.h"
#include "tools/machine/host.h"
#include "tools/train/flops.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::ordered_json;

// What this process was called with.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  return arguments;
}

// The variables that are this program's own: others may hold secrets.
Json environment() {
  Json variables = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("FSDPTRAIN_") && equals != std::string_view::npos) {
      variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
  }
  return variables;
}

Json program() {
  const BuildInfo build = build_info();
  return {{"version", build.version},
          {"commit", build.commit},
          {"compiler", build.compiler},
          {"build_type", build.build_type},
          {"gemm", build.gemm}};
}

Json machine(std::optional<double> measured_rate) {
  RankContext& context = current_context();
  return {{"host", host_name()},
          {"os", os_name()},
          {"cpu", machine_name()},
          {"memory_bytes", physical_memory_bytes()},
          {"isa", name_of(context.isa())},
          {"threads", context.pool().threads()},
          {"measured_flops_per_second", measured_rate ? Json(*measured_rate) : Json()}};
}

Json libraries() {
  Json versions = Json::object();
  for (const LibraryVersion& library : library_versions()) {
    versions[library.name] = library.version;
  }
  return versions;
}

Json data_files(const std::vector<DataFile>& files) {
  Json list = Json::array();
  for (const DataFile& file : files) {
    list.push_back({{"path", file.path},
                    {"bytes", file.nbytes},
                    {"tokens", file.num_tokens},
                    {"fingerprint", file.fingerprint}});
  }
  return list;
}

Json configuration(const Config& config) {
  const ConfigHash hash = hash_of(config);
  return {{"numerics", hash.numerics}, {"operations", hash.operations}};
}

Json changes(const std::vector<ConfigChange>& changes) {
  Json list = Json::array();
  for (const ConfigChange& change : changes) {
    list.push_back({{"key", change.key}, {"before", change.before}, {"now", change.now}});
  }
  return list;
}

}  // namespace

std::string_view name_of(RunStatus status) {
  switch (status) {
    case RunStatus::Running:
      return "running";
    case RunStatus::Done:
      return "done";
    case RunStatus::Stopped:
      return "stopped";
    case RunStatus::Failed:
      return "failed";
  }
  __builtin_unreachable();
}

RunRecord::RunRecord(std::filesystem::path path, const Config& config, const RunFacts& facts,
                     const std::optional<EarlierRun>& earlier)
    : path_(std::move(path)),
      attempt_(earlier ? earlier->attempt() + 1 : 1),
      json_{{"format", kRecordFormat},
            {"format_version", kRecordVersion},
            {"attempt", attempt_},
            {"started", now_utc()},
            {"program", program()},
            {"command_line", command_line()},
            {"environment", environment()},
            {"machine", machine(facts.measured_rate)},
            {"ranks", facts.num_ranks},
            {"resumed_step", facts.resumed_step},
            {"config", to_toml(config)},
            {"configuration", configuration(config)},
            {"changes", changes(facts.changes)},
            {"earlier", earlier ? earlier->attempts() : Json::array()},
            {"libraries", libraries()},
            {"data", data_files(facts.data)},
            {"parameters", facts.num_parameters},
            {"flops_per_token", facts.flops_per_token},
            {"flops_convention", kFlopsConvention},
            {"status", name_of(RunStatus::Running)}} {
  write();
}

void RunRecord::end(const RunEnd& end) {
  json_["status"] = name_of(end.status);
  json_["ended"] = now_utc();
  json_["exit_code"] = end.exit_code;
  json_["steps"] = end.steps;
  json_["seconds"] = end.seconds;
  if (!end.error.empty()) {
    json_["error"] = end.error;
  }
  write();
}

void RunRecord::write() const {
  // Paths and arguments need not be UTF-8.
  const std::string text = json_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  AtomicFile file(path_);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace fsdptrain::tools
