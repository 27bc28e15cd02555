#include "runtime/data/token_source.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <span>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/token_writer.h"

namespace fsdptrain::data {
namespace {

namespace fs = std::filesystem;

// A set that a writer has not finished, or that lost a file, begins late or has a gap.
void check_complete(const std::vector<fs::path>& shards, const fs::path& first) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string ending = fmt::format("-{:05}", i);
    check<DataError>(shards[i].stem().native().ends_with(ending),
                     "{}: the shard before it is missing, expected a name with {}: the set was "
                     "not written to its end, or has lost a file",
                     shards[i].native(), ending);
  }
  check<DataError>(!shards.empty(), "{}: is no shard", first.native());
}

// NAME of NAME-00000.bin, or nothing for another name.
std::string set_name(const fs::path& path) {
  const std::string stem = path.stem().native();
  const std::size_t dash = stem.rfind('-');
  const bool numbered = dash != std::string::npos && stem.size() == dash + 6 &&
                        stem.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  return numbered ? stem.substr(0, dash) : "";
}

// All that are named so: what is no file, such as a link to nothing, is told when it is opened.
std::vector<fs::path> token_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".bin") {
      files.push_back(entry->path());
    }
  }
  if (error) {
    fail_path(folder, "listing the folder", error.value());
  }
  std::ranges::sort(files, {},
                    [](const fs::path& file) -> const std::string& { return file.native(); });
  check<DataError>(!files.empty(),
                   "{}: the folder holds no .bin file: make one with fsdptrain data prepare",
                   folder.native());
  std::string last;
  for (const fs::path& file : files) {
    const std::string set = set_name(file);
    if (!set.empty() && set != last) {
      // With an ending: that of a set's name ("c4.en") belongs to it.
      check_complete(existing_shards(folder / (set + ".bin")), file);
      last = set;
    }
  }
  return files;
}

// That the last shard of each set of a folder is there, and nothing behind it.
void check_ends(std::span<const std::unique_ptr<const TokenFile>> files) {
  std::map<std::string, const TokenFile*> last_of;
  for (const auto& file : files) {
    const std::string set = set_name(file->path());
    if (set.empty()) {
      continue;
    }
    const TokenFile*& last = last_of[set];
    check<DataError>(last == nullptr || last->header().shard_place != ShardPlace::Last,
                     "{}: lies behind {}, which is the last shard of its set: keep sets of one "
                     "name in folders of their own",
                     file->path().native(), last == nullptr ? "" : last->path().native());
    last = file.get();
  }
  for (const auto& [set, last] : last_of) {
    check<DataError>(last->header().shard_place != ShardPlace::Inner,
                     "{}: the shard behind it is missing: the set has lost a file: bring it back, "
                     "or prepare the set again",
                     last->path().native());
  }
}

}  // namespace

TokenSource::TokenSource(const std::vector<fs::path>& paths) : begins_{0} {
  check<ConfigError>(!paths.empty(), "token source: needs a file or a folder, got none");
  std::vector<std::string> names;
  for (const fs::path& path : paths) {
    names.push_back(path.native());
    std::error_code unknown;  // opening it says why
    const bool is_folder = fs::is_directory(path, unknown);
    const auto files = is_folder ? token_files_in(path) : std::vector{path};
    for (const fs::path& file : files) {
      files_.push_back(std::make_unique<const TokenFile>(file));
      const TokenFile& opened = *files_.back();
      check_same_vocabulary(files_.front()->path().native(), vocabulary(), file.native(),
                            opened.header().vocabulary);
      begins_.push_back(begins_.back() + opened.num_tokens());
    }
    if (is_folder) {
      check_ends(std::span(files_).last(files.size()));
    }
  }
  name_ = fmt::format("{}", fmt::join(names, ", "));
}

void TokenSource::advise_random() const {
  for (const auto& file : files_) {
    file->advise_random();
  }
}

std::uint64_t TokenSource::count_documents() const {
  std::uint64_t num_documents = 0;
  bool is_ended = true;
  for (const auto& file : files_) {
    if (file->num_tokens() == 0) {
      continue;
    }
    num_documents += file->header().num_documents - (is_ended ? 0 : 1);
    std::array<std::int64_t, 1> last{};
    file->read(file->num_tokens() - 1, last);
    is_ended = vocabulary().end_of_document && last[0] == *vocabulary().end_of_document;
  }
  return num_documents;
}

void TokenSource::read(std::uint64_t begin, std::span<std::int64_t> out) const {
  const std::uint64_t num_left = num_tokens() - std::min(begin, num_tokens());
  check<ShapeError>(out.size() <= num_left, "{}: {} tokens from {} on are not within its {} tokens",
                    name_, out.size(), begin, num_tokens());
  auto index = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin());
  while (!out.empty()) {
    const std::uint64_t end = begins_[index];
    const auto part =
        out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), end - begin)));
    files_[index - 1]->read(begin - begins_[index - 1], part);
    out = out.subspan(part.size());
    begin += part.size();
    ++index;
  }
}

}  // namespace fsdptrain::data
