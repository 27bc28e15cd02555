#include "tools/run/run_start.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/error.h"
#include "tools/config/changes.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::json;

std::vector<std::string> fingerprints_of(const RunFolder& folder,
                                         const RunFolder::Options& options) {
  const auto is_of_data = [](std::string_view key) { return key.starts_with("data."); };
  std::vector<std::string> fingerprints;
  if (std::ranges::none_of(options.allowed, is_of_data)) {
    for (const DataFile& file : folder.earlier()->data()) {
      fingerprints.push_back(file.fingerprint);
    }
  }
  return fingerprints;
}

// Of rank 0.
RunStart start_of(const Config& config, const RunFolder& folder,
                  const RunFolder::Options& options) {
  RunStart start{.is_done = folder.is_done(),
                 .resumes = folder.earlier().has_value(),
                 .numerics = {hash_of(config).numerics}};
  if (folder.earlier()) {
    start.numerics.insert(folder.earlier()->numerics().begin(), folder.earlier()->numerics().end());
    start.fingerprints = fingerprints_of(folder, options);
  }
  return start;
}

Json to_json(const RunStart& start) {
  return {{"is_done", start.is_done},
          {"resumes", start.resumes},
          {"numerics", start.numerics},
          {"fingerprints", start.fingerprints}};
}

RunStart from_json(const Json& json) {
  RunStart start;
  json.at("is_done").get_to(start.is_done);
  json.at("resumes").get_to(start.resumes);
  json.at("numerics").get_to(start.numerics);
  json.at("fingerprints").get_to(start.fingerprints);
  return start;
}

}  // namespace

RunStart begin_run(const Config& config, const RunFolder::Options& options, comm::World& world,
                   Account* account) {
  std::exception_ptr failure;
  Json message;
  if (account != nullptr) {
    try {
      account->folder.emplace(RunFolder::claim(config, options));
      message = to_json(start_of(config, *account->folder, options));
    } catch (const std::exception& error) {
      failure = std::current_exception();
      message = {{"error", error.what()},
                 {"is_refused", exit_code_of(error) == static_cast<int>(ExitCode::Refused)}};
    }
  }
  const Json first =
      Json::parse(world.exchange(message.dump(-1, ' ', false, Json::error_handler_t::replace))[0]);
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (first.contains("error")) {
    const auto text = first["error"].get<std::string>();
    check<ConfigError>(!first["is_refused"].get<bool>(), "{}", text);
    fail<IoError>("{}", text);
  }
  RunStart start = from_json(first);
  start.checkpoints = std::filesystem::path(config.run.dir) / kCheckpointsFolder;
  return start;
}

void check_data(const RunStart& start, const std::vector<DataFile>& files) {
  if (start.fingerprints.empty()) {
    return;
  }
  check<ConfigError>(files.size() == start.fingerprints.size(),
                     "data.tokens: there are {} files, where the run has read {} so far: put those "
                     "back, give another run.dir, or go on with these by --allow-change=data",
                     files.size(), start.fingerprints.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    check<ConfigError>(files[i].fingerprint == start.fingerprints[i],
                       "data.tokens: {} is not the file that the run has read so far: put that "
                       "back, give another run.dir, or go on with it by --allow-change=data",
                       files[i].path);
  }
}

}  // namespace fsdptrain::tools
