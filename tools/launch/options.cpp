#include "tools/launch/options.h"

#include <algorithm>
#include <system_error>

#include "comm/shm/segment.h"
#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::tools {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void refuse_streams(std::string_view option, std::string_view text) {
  fail<ConfigError>(
      "{}: must be 0 (none), 1 (standard output), 2 (standard error) or 3 (both), or of single "
      "ranks as in 0:1,2:3, got {}",
      option, in_quotes(text));
}

int streams_in(std::string_view option, std::string_view whole, std::string_view text) {
  const std::optional<int> value = parse_number(text);
  if (!value || *value > 3) {
    refuse_streams(option, whole);
  }
  return *value;
}

// Their numbers may have gaps: one of them has failed, or a container has some.
int num_gpus_in(const std::filesystem::path& devices) {
  constexpr std::string_view kPrefix = "nvidia";
  int num_there = 0;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(devices, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().native();
    num_there += name.starts_with(kPrefix) && parse_number(name.substr(kPrefix.size())) ? 1 : 0;
  }
  return num_there;
}

Destination destination_of(const LaunchOptions& options, bool tee, bool redirect) {
  const bool none_chosen = !options.tee && !options.redirect;
  if (tee || (none_chosen && options.log_dir)) {
    return Destination::Both;
  }
  return redirect ? Destination::File : Destination::Console;
}

}  // namespace

StreamChoice StreamChoice::parse(std::string_view option, std::string_view text) {
  StreamChoice choice;
  if (text.find(':') == std::string_view::npos) {
    choice.of_all_ = streams_in(option, text, text);
    return choice;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const std::optional<int> rank = parse_number(part.substr(0, colon));
    if (!rank || colon == std::string_view::npos || choice.of_rank_.contains(*rank)) {
      refuse_streams(option, text);
    }
    choice.of_rank_[*rank] = streams_in(option, text, part.substr(colon + 1));
  }
  return choice;
}

void check_options(const LaunchOptions& options) {
  check<ConfigError>(!options.program.empty() && !options.program.front().empty(),
                     "launch: no program was given; put it behind --, as in fsdptrain launch "
                     "--nproc-per-node 2 -- train --config run.toml");
  const bool has_files = options.tee || options.redirect;
  check<ConfigError>(!has_files || options.log_dir,
                     "{}: there is no folder for the files; add --log-dir FOLDER",
                     options.tee ? "--tee" : "--redirect");
  const auto check_rank = [&](std::string_view option, int rank) {
    check<ConfigError>(rank < options.num_ranks, "{}: rank {} is named, but ranks are 0 to {}",
                       option, rank, options.num_ranks - 1);
  };
  check_rank("--tee", options.tee ? options.tee->last_named() : -1);
  check_rank("--redirect", options.redirect ? options.redirect->last_named() : -1);
  check_rank("--local-ranks-filter",
             options.shown_ranks.empty() ? -1 : *options.shown_ranks.rbegin());
}

Destinations destinations_of(const LaunchOptions& options, int rank) {
  const auto& tee = options.tee;
  const auto& redirect = options.redirect;
  return {
      destination_of(options, tee && tee->has_output(rank), redirect && redirect->has_output(rank)),
      destination_of(options, tee && tee->has_error(rank), redirect && redirect->has_error(rank))};
}

int parse_num_ranks(std::string_view text, int num_gpus, int num_processors) {
  constexpr std::string_view kOption = "--nproc-per-node";
  if (text == "gpu") {
    check<ConfigError>(num_gpus > 0,
                       "{}: gpu: this host has no GPU, or CUDA_VISIBLE_DEVICES hides "
                       "them; say cpu or a number",
                       kOption);
  }
  const std::optional<int> number = text == "gpu"                    ? num_gpus
                                    : text == "cpu"                  ? num_processors
                                    : text == "auto" && num_gpus > 0 ? num_gpus
                                    : text == "auto"                 ? num_processors
                                                                     : parse_number(text);
  check<ConfigError>(
      number && *number >= 1 && *number <= comm::kMaxRanksPerHost,
      "{}: must be a number from 1 to {}, auto, gpu or cpu, got {}{}", kOption,
      comm::kMaxRanksPerHost, text,
      number && std::to_string(*number) != text ? fmt::format(", which is {} here", *number) : "");
  return *number;
}

int num_visible_gpus(const std::filesystem::path& devices, const char* visible) {
  const int num_there = num_gpus_in(devices);
  if (visible == nullptr) {
    return num_there;
  }
  // As CUDA reads it: devices by number or name, up to the first that is none.
  int num_visible = 0;
  for (const std::string_view name : split(visible, ',')) {
    const std::optional<int> number = parse_number(name);
    const bool is_named = name.starts_with("GPU-") || name.starts_with("MIG-");
    if (!is_named && (!number || *number >= num_there)) {
      break;
    }
    ++num_visible;
  }
  return std::min(num_visible, num_there);
}

std::set<int> parse_ranks(std::string_view option, std::string_view text) {
  std::set<int> ranks;
  for (const std::string_view part : split(text, ',')) {
    const std::optional<int> rank = parse_number(part);
    check<ConfigError>(rank.has_value(), "{}: must be ranks with commas, as in 0,3, got {}", option,
                       in_quotes(text));
    ranks.insert(*rank);
  }
  return ranks;
}

}  // namespace fsdptrain::tools
