#include "tools/run/earlier_run.h"

#include <fstream>
#include <iterator>
#include <system_error>

#include "runtime/base/error.h"
#include "tools/run/run_record.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::ordered_json;

// What a run writes of itself is some kilobytes, and some hundred bytes for each attempt.
constexpr std::uintmax_t kLargestRecord = 64 << 20;

// Of an attempt, what the next one keeps.
constexpr const char* kKept[] = {"attempt",   "started", "ended",         "status",
                                 "exit_code", "ranks",   "resumed_step",  "steps",
                                 "seconds",   "error",   "configuration", "changes"};

// Null for what is no JSON.
Json read_json(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) > kLargestRecord) {
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  Json json = Json::parse(std::istreambuf_iterator<char>(file), {}, nullptr, false);
  return json.is_discarded() ? Json() : json;
}

bool is_record(const Json& json) {
  return json.is_object() && json.value("format", Json()) == kRecordFormat &&
         json.value("format_version", Json()) == kRecordVersion;
}

Json kept_of(const Json& json) {
  Json kept = Json::object();
  for (const char* key : kKept) {
    if (json.contains(key)) {
      kept[key] = json[key];
    }
  }
  return kept;
}

std::vector<DataFile> data_of(const Json& json) {
  std::vector<DataFile> files;
  for (const Json& file : json.at("data")) {
    files.push_back({.path = file.at("path").get<std::string>(),
                     .nbytes = file.at("bytes").get<std::uint64_t>(),
                     .num_tokens = file.at("tokens").get<std::uint64_t>(),
                     .fingerprint = file.at("fingerprint").get<std::string>()});
  }
  return files;
}

}  // namespace

EarlierRun::EarlierRun(const Json& json)
    : attempt_(json.at("attempt").get<std::int64_t>()),
      is_done_(json.at("status") == name_of(RunStatus::Done)),
      steps_(json.value("steps", std::int64_t{0})),
      config_(parse_config(json.at("config").get<std::string>(), "config of run.json")),
      data_(data_of(json)),
      attempts_(json.value("earlier", Json::array())) {
  attempts_.push_back(kept_of(json));
  for (const Json& attempt : attempts_) {
    numerics_.insert(attempt.at("configuration").at("numerics").get<std::string>());
  }
}

std::optional<EarlierRun> EarlierRun::read(const std::filesystem::path& path) {
  const Json json = read_json(path);
  if (!is_record(json)) {
    return std::nullopt;
  }
  check<DataError>(json.contains("config"),
                   "{}: is of a program that could not go on with a run: give another run.dir, or "
                   "--overwrite",
                   path.string());
  try {
    return EarlierRun(json);
  } catch (const Json::exception& error) {
    fail<DataError>("{}: is damaged: {}: give another run.dir, or --overwrite", path.string(),
                    error.what());
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
}

bool is_run_record(const std::filesystem::path& path) {
  return is_record(read_json(path));
}

}  // namespace fsdptrain::tools
