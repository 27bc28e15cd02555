#include "tools/commands.h"

#include <charconv>
#include <fmt/format.h>
#include <system_error>

#include "comm/init/environment.h"
#include "runtime/base/error.h"
#include "tools/config/fields.h"

namespace fsdptrain::tools {
namespace {

template <class T>
CLI::Validator number_between(std::string_view kind, T min, T max) {
  const std::string allowed = fmt::format("from {} to {}", min, max);
  const auto complaint = [=, kind = std::string(kind)](const std::string& text) -> std::string {
    T number{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    const bool fits = error == std::errc() && rest == end && number >= min && number <= max;
    return fits ? "" : fmt::format("must be a {} {}, got {}", kind, allowed, text);
  };
  return {complaint, allowed};
}

}  // namespace

CLI::Validator whole_number(std::uint64_t min, std::uint64_t max) {
  return number_between("whole number", min, max);
}

CLI::Validator decimal_number(double min, double max) {
  return number_between("number", min, max);
}

CLI::Validator not_empty() {
  return {[](const std::string& text) -> std::string {
            return text.empty() ? "must not be empty" : "";
          },
          ""};
}

void add_threads(CLI::App& app, int& threads) {
  const Field& field = *find_field("run.threads");
  app.add_option("--threads", threads, std::string(field.meaning))
      ->check(whole_number(static_cast<std::uint64_t>(field.allowed.min),
                           static_cast<std::uint64_t>(field.allowed.max)))
      ->capture_default_str();
}

void refuse_ranks(std::string_view command) {
  const comm::Membership membership = comm::read_environment(comm::environment_variable);
  check<ConfigError>(membership.size == 1,
                     "{}: runs on one rank, but this process is {}: start it without the launcher",
                     command, comm::to_string(membership));
}

int run_parsed(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      return command.run();
    }
  }
  fail<ConfigError>("no command was given: see --help");
}

void ConfigArguments::add_to(CLI::App& app) {
  app.add_option_function<std::string>(
         "--config", [this](const std::string& path) { file = path; },
         "TOML file of the run; without it, the defaults (docs/config.md)")
      ->type_name("FILE");
  app.add_option("--set", overrides, "override one key of the file; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all();
}

}  // namespace fsdptrain::tools
