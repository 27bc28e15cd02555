#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/format/layout/layout.h"

// manifest.json of a checkpoint (FORMAT.md): what its files are and what lies where in them. Of the
// order of ranks + tensors, never their product.
namespace fsdptrain::checkpoint {

inline constexpr std::int64_t kFormatVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";
// Of one that is read: a larger one is refused before it is.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

struct SavedFile {
  // A plain name in the checkpoint's folder.
  std::string name;
  FileFacts facts;

  friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

// State that is no tensor of the model: of the user, or of the training program. Its text is in the
// manifest; large ones keep references.
struct SavedObject {
  enum class Kind { Replicated, PerRank };
  Kind kind = Kind::Replicated;
  // One, or one per rank.
  std::vector<nlohmann::json> values;

  friend bool operator==(const SavedObject&, const SavedObject&) = default;
};

struct Manifest {
  std::int64_t step = 0;
  // 32 hexadecimal digits: of the attempt to save that made it, unlike that of any other.
  std::string attempt;
  std::int64_t num_ranks = 1;
  // UTC, ISO 8601.
  std::string created;
  // By which program.
  std::string writer;
  // One per rank, in order.
  std::vector<SavedFile> files;
  SavedLayout layout;
  std::map<std::string, SavedObject> objects;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The text, of which the last member is the digest of all before it.
std::string render_manifest(const Manifest& manifest);
// Everything is checked before it is believed: sizes, names, ranges, coverage, sums. DataError
// naming `source`, the member and the value.
Manifest parse_manifest(const std::string& source, std::string_view text);

}  // namespace fsdptrain::checkpoint
