#include "checkpoint/folder/names.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <functional>
#include <random>

namespace fsdptrain::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::size_t kAttemptDigits = 32;

std::optional<std::int64_t> parse_step(std::string_view digits) {
  std::int64_t step = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, step);
  return error == std::errc() && rest == end && step >= 0 ? std::optional(step) : std::nullopt;
}

}  // namespace

std::string step_folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> step = parse_step(name.substr(kStepPrefix.size()));
  return step && step_folder_name(*step) == name ? step : std::nullopt;
}

std::string make_attempt() {
  std::random_device device;
  std::string attempt;
  for (int i = 0; i < 4; ++i) {
    attempt += fmt::format("{:08x}", device());
  }
  return attempt;
}

bool is_attempt(std::string_view text) {
  return text.size() == kAttemptDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string staging_name(std::int64_t step, std::string_view attempt) {
  return fmt::format("{}.{}", step, attempt);
}

std::optional<std::int64_t> step_of_staging(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !is_attempt(name.substr(dot + 1))) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> step = parse_step(name.substr(0, dot));
  return step && staging_name(*step, name.substr(dot + 1)) == name ? step : std::nullopt;
}

std::vector<std::int64_t> list_steps(FileSystem& files, const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  if (!files.kind_of(folder)) {
    return steps;
  }
  for (const FolderEntry& entry : files.list(folder)) {
    const std::optional<std::int64_t> step = step_of(entry.name);
    if (step && entry.kind != EntryKind::File) {
      steps.push_back(*step);
    }
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

}  // namespace fsdptrain::checkpoint
