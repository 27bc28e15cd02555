#include "tools/launch/words.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace fsdptrain::tools {
namespace {

constexpr std::array<std::string_view, 5> kMayHaveValue{"--tee", "-t", "--redirect", "--redirects",
                                                        "-r"};

// "--log_dir=my_logs": the name alone.
std::string with_hyphens(const std::string& word) {
  std::string changed = word;
  const std::size_t end = word.starts_with("--") ? std::min(word.find('='), word.size()) : 0;
  std::replace(changed.begin(), changed.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return changed;
}

bool is_streams(const std::string& word) {
  return !word.empty() && word.find_first_not_of("0123456789:,") == std::string::npos;
}

bool takes_value(const CLI::App& launch, const std::string& word) {
  if (word.find('=') != std::string::npos) {
    return false;
  }
  const CLI::Option* const option = launch.get_option_no_throw(word);
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

LaunchWords split_launch_words(const CLI::App& launch, const std::vector<std::string>& words) {
  LaunchWords result;
  auto next = words.begin();
  for (; next != words.end() && next->starts_with('-') && *next != "-"; ++next) {
    if (*next == "--") {
      result.has_mark = true;
      ++next;
      break;
    }
    const std::string word = with_hyphens(*next);
    result.options.push_back(word);
    const bool may_have = std::ranges::find(kMayHaveValue, word) != kMayHaveValue.end();
    const bool has_next = std::next(next) != words.end();
    if (may_have && !(has_next && is_streams(*std::next(next)))) {
      result.options.emplace_back("3");
    } else if ((may_have || takes_value(launch, word)) && has_next) {
      result.options.push_back(*++next);
    }
  }
  result.program.assign(next, words.end());
  return result;
}

}  // namespace fsdptrain::tools
