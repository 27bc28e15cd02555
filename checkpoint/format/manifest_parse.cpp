#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/format/json_records.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/manifest_text.h"
#include "checkpoint/format/record_reader.h"
#include "checkpoint/safetensors/dtype_names.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();

// Names that a later version may give to dtypes of 8 bits; no other meaning may be given to them.
constexpr std::string_view kReservedDTypes[] = {"F8_E4M3", "F8_E5M2"};

SavedFile read_file(RecordReader& record) {
  SavedFile file;
  file.name = record.text("name", kMaxNameBytes);
  file.facts.nbytes = static_cast<std::uint64_t>(record.integer("nbytes", 0, kMaxInteger));
  constexpr std::size_t kDigits = 32;
  file.facts.digest = parse_digest(record.text("digest", kDigits), record.where() + ": digest");
  return file;
}

SavedPlane read_plane(const std::string& where, const json& plane) {
  check<DataError>(
      plane.is_array() && plane.size() == 2 && plane[0].is_string() && plane[1].is_string(),
      "{}: a plane must be [name, dtype], got {}", where, shown_json(plane));
  const auto& dtype = plane[1].get_ref<const std::string&>();
  for (const std::string_view reserved : kReservedDTypes) {
    check<DataError>(dtype != reserved, "{}: dtype {} is reserved by version {}, not supported",
                     where, dtype, kFormatVersion);
  }
  const std::optional<DType> known = dtype_of_safetensors(dtype);
  check<DataError>(known.has_value(), "{}: dtype {} is not one of the format's", where,
                   shown(dtype));
  return {.name = plane[0].get<std::string>(), .dtype = *known};
}

SavedGroup read_group(RecordReader& record) {
  SavedGroup group;
  group.name = record.text("name", kMaxNameBytes);
  group.part = record.integer("part", 0, kMaxElements);
  for (const json& plane : record.array("planes")) {
    group.planes.push_back(read_plane(record.where(), plane));
  }
  return group;
}

SavedPiece read_piece(RecordReader record) {
  SavedPiece piece;
  piece.file = record.integer("file", 0, kMaxFiles - 1);
  piece.box.offset = record.integers("offset", kMaxDims, 0, kMaxInteger);
  piece.box.size = record.integers("size", kMaxDims, 1, kMaxInteger);
  piece.in_box.begin = record.integer("begin", 0, kMaxInteger);
  piece.in_box.end = record.integer("end", 0, kMaxInteger);
  record.finish();
  return piece;
}

SavedTensor read_tensor(RecordReader& record) {
  SavedTensor tensor;
  tensor.name = record.text("name", kMaxNameBytes);
  tensor.shape = record.shape("shape");
  tensor.group = record.integer("group", 0, kMaxInteger);
  tensor.step = record.optional_integer("step", 0, kMaxInteger);
  if (!record.has("pieces")) {
    tensor.offset = record.integer("offset", 0, kMaxInteger);
    return tensor;
  }
  json pieces = record.array("pieces");
  check<DataError>(!pieces.empty(), "{}: pieces must not be empty", record.where());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    tensor.pieces.push_back(read_piece(RecordReader(fmt::format("{}: piece {}", record.where(), i),
                                                    std::exchange(pieces[i], json()))));
  }
  return tensor;
}

SavedObject read_object(RecordReader& record) {
  constexpr std::size_t kMaxKindBytes = 16;
  SavedObject object;
  const std::string kind = record.text("kind", kMaxKindBytes);
  check<DataError>(kind == "replicated" || kind == "per_rank",
                   "{}: kind must be replicated or per_rank, got {}", record.where(), shown(kind));
  object.kind = kind == "replicated" ? SavedObject::Kind::Replicated : SavedObject::Kind::PerRank;
  json values = record.array("values");
  for (json& value : values) {
    object.values.push_back(std::move(value));
  }
  return object;
}

// Puts the parts of the text where they belong.
class ManifestParser {
 public:
  explicit ManifestParser(std::string source) : source_(std::move(source)) {}

  void enter(const std::string& member, bool is_array);
  void take(const JsonPlace& place, json value);
  Manifest finish();

 private:
  // How many of a list there may be, before they are kept.
  void check_count(const JsonPlace& place, std::size_t most) const {
    check<DataError>(place.index < most, "{}: {} has more than {} elements", source_, place.member,
                     most);
  }

  std::string source_;
  Manifest manifest_;
  json scalars_ = json::object();
  std::set<std::string> lists_;
};

void ManifestParser::enter(const std::string& member, bool is_array) {
  const bool is_list = member == "files" || member == "groups" || member == "tensors";
  check<DataError>(is_list ? is_array : member == "objects" && !is_array, "{}: {} must {}, got {}",
                   source_, shown(member),
                   is_list               ? "be an array"
                   : member == "objects" ? "be an object"
                                         : "be text or a number, if it is of this version",
                   is_array ? "an array" : "an object");
  lists_.insert(member);
}

void ManifestParser::take(const JsonPlace& place, json value) {
  const bool is_list = lists_.contains(place.member);
  if (!is_list) {
    scalars_[place.member] = std::move(value);
    return;
  }
  const std::string where = place.member == "objects"
                                ? fmt::format("{}: object {}", source_, shown(place.name))
                                : fmt::format("{}: {} {}", source_, place.member, place.index);
  RecordReader record(where, std::move(value));
  if (place.member == "files") {
    check_count(place, static_cast<std::size_t>(kMaxFiles));
    manifest_.files.push_back(read_file(record));
  } else if (place.member == "groups") {
    check_count(place, kMaxTensors);
    manifest_.layout.groups.push_back(read_group(record));
  } else if (place.member == "tensors") {
    check_count(place, kMaxTensors);
    manifest_.layout.tensors.push_back(read_tensor(record));
  } else {
    manifest_.objects.emplace(place.name, read_object(record));
  }
  record.finish();
}

Manifest ManifestParser::finish() {
  for (const char* list : {"files", "groups", "tensors", "objects"}) {
    check<DataError>(lists_.contains(list), "{}: {} is missing", source_, list);
  }
  RecordReader record(source_, std::move(scalars_));
  constexpr std::size_t kMaxBytes = 64;
  record.text("format", kMaxBytes);
  record.text("digest", kMaxBytes);
  record.integer("version", kFormatVersion, kFormatVersion);
  manifest_.writer = record.text("writer", kMaxWriterBytes);
  manifest_.created = record.text("created", kMaxBytes);
  manifest_.step = record.integer("step", 0, kMaxInteger);
  manifest_.attempt = record.text("attempt", kMaxBytes);
  manifest_.num_ranks = record.integer("num_ranks", 1, kMaxFiles);
  record.finish();
  check_manifest(source_, manifest_);
  return std::move(manifest_);
}

// The version, before all else: a newer one may be different in everything behind it.
void check_version(const std::string& source, std::string_view text) {
  check<DataError>(text.starts_with(kManifestBegin), "{}: it must begin with {}, got {}", source,
                   kManifestBegin, shown(text.substr(0, kManifestBegin.size())));
  constexpr std::size_t kMaxDigits = 9;
  text.remove_prefix(kManifestBegin.size());
  const std::string_view digits =
      text.substr(0, std::min(kMaxDigits, text.find_first_not_of("0123456789")));
  const std::int64_t version = digits.empty() ? 0 : std::stoll(std::string(digits));
  check<DataError>(version >= 1, "{}: version must be an integer >= 1, got {}", source,
                   shown(text.substr(0, kMaxDigits)));
  check<DataError>(version <= kFormatVersion,
                   "{}: it is of version {} of the format, this program reads up to {}: use a "
                   "newer fsdptrain",
                   source, version, kFormatVersion);
}

void check_digest(const std::string& source, std::string_view text) {
  constexpr std::size_t kDigits = 32;
  const std::size_t tail_nbytes = kManifestDigest.size() + kDigits + kManifestEnd.size();
  const std::string_view tail =
      text.size() < tail_nbytes ? "" : text.substr(text.size() - tail_nbytes);
  check<DataError>(tail.starts_with(kManifestDigest) && tail.ends_with(kManifestEnd),
                   "{}: the manifest does not end with its digest: it was cut short or damaged",
                   source);
  const Digest stored = parse_digest(tail.substr(kManifestDigest.size(), kDigits),
                                     source + ": the manifest's digest");
  const Digest actual = digest_of(text.substr(0, text.size() - tail_nbytes));
  check<DataError>(stored == actual,
                   "{}: the manifest is damaged or was edited: it has the digest {}, but says {}",
                   source, to_string(actual), to_string(stored));
}

}  // namespace

Manifest parse_manifest(const std::string& source, std::string_view text) {
  check<DataError>(text.size() <= kMaxManifestBytes, "{}: a manifest has at most {} bytes, got {}",
                   source, kMaxManifestBytes, text.size());
  check_version(source, text);
  check_digest(source, text);
  ManifestParser parser(source);
  read_json_records(
      source, text, {},
      [&](const std::string& member, bool is_array) { parser.enter(member, is_array); },
      [&](const JsonPlace& place, json value) { parser.take(place, std::move(value)); });
  return parser.finish();
}

}  // namespace fsdptrain::checkpoint
