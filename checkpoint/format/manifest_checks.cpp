#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_set>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/format/manifest_text.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

// In a folder of any file system, also of one that does not tell cases apart.
bool is_plain_name(std::string_view name) {
  constexpr std::size_t kMaxBytes = 255;
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= kMaxBytes && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos && name != kManifestName;
}

// 2026-01-31T23:59:59Z.
bool is_utc_time(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  const auto fits = [](char at, char form) {
    return form == 'd' ? at >= '0' && at <= '9' : at == form;
  };
  return std::ranges::equal(text, kForm, fits);
}

void check_files(const std::string& source, const Manifest& manifest) {
  check<DataError>(std::cmp_equal(manifest.num_ranks, manifest.files.size()),
                   "{}: num_ranks is {}, but there are {} files", source, manifest.num_ranks,
                   manifest.files.size());
  std::unordered_set<std::string_view> names;
  for (const SavedFile& file : manifest.files) {
    check<DataError>(is_plain_name(file.name),
                     "{}: a file's name has 1 to 255 of a-z, 0-9, '.', '_' and '-', does not begin "
                     "with '.' and is not {}, got {}",
                     source, kManifestName, shown(file.name));
    check<DataError>(names.insert(file.name).second, "{}: two files are named {}", source,
                     shown(file.name));
  }
}

void check_sizes(const std::string& source, const Manifest& manifest) {
  const std::vector<std::uint64_t> data =
      data_nbytes_of_files(manifest.layout, static_cast<std::int64_t>(manifest.files.size()));
  for (std::size_t i = 0; i < data.size(); ++i) {
    const SavedFile& file = manifest.files[i];
    check<DataError>(file.facts.nbytes > data[i],
                     "{}: file {} has {} bytes, but the tensors in it have {}", source,
                     shown(file.name), file.facts.nbytes, data[i]);
  }
}

// What a text of JSON gives back as it was.
void check_value(const std::string& what, const nlohmann::json& value, std::size_t depth) {
  check<DataError>(depth <= kMaxObjectDepth, "{}: it is nested deeper than {}", what,
                   kMaxObjectDepth);
  check<DataError>(!value.is_number_float() || std::isfinite(value.get<double>()),
                   "{}: numbers must be finite", what);
  check<DataError>(!value.is_binary() && !value.is_discarded(), "{}: it must be JSON", what);
  if (value.is_structured()) {
    for (const nlohmann::json& inner : value) {
      check_value(what, inner, depth + 1);
    }
  }
}

void check_objects(const std::string& source, const Manifest& manifest) {
  for (const auto& [name, object] : manifest.objects) {
    check<DataError>(!name.empty() && name.size() <= kMaxNameBytes,
                     "{}: an object's name has 1 to {} bytes, got {}", source, kMaxNameBytes,
                     shown(name));
    const std::string what = source + ": object " + shown(name);
    const bool is_shared = object.kind == SavedObject::Kind::Replicated;
    const auto expected = is_shared ? 1 : manifest.num_ranks;
    check<DataError>(std::cmp_equal(object.values.size(), expected),
                     "{}: it must have {} values, got {}", what, expected, object.values.size());
    for (const nlohmann::json& value : object.values) {
      check_value(what, value, 1);
    }
  }
}

}  // namespace

void check_manifest(const std::string& source, const Manifest& manifest) {
  check<DataError>(manifest.step >= 0, "{}: step must be >= 0, got {}", source, manifest.step);
  parse_digest(manifest.attempt, source + ": attempt");
  check<DataError>(is_utc_time(manifest.created),
                   "{}: created must be like 2026-01-31T23:59:59Z, got {}", source,
                   shown(manifest.created));
  check<DataError>(manifest.writer.size() <= kMaxWriterBytes,
                   "{}: writer has at most {} bytes, got {}", source, kMaxWriterBytes,
                   manifest.writer.size());
  check_files(source, manifest);
  check_layout(source, manifest.layout, manifest.num_ranks);
  check_sizes(source, manifest);
  check_objects(source, manifest);
}

}  // namespace fsdptrain::checkpoint
