#include "checkpoint/convert/reshard.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/convert/parts.h"
#include "checkpoint/folder/names.h"
#include "checkpoint/folder/staging.h"
#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/plan/layout_index.h"
#include "checkpoint/save/manifest_file.h"
#include "checkpoint/save/rank_file.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::checkpoint {
namespace {

constexpr std::int64_t kGranule = 128;

std::int64_t rounded_up(std::int64_t value) {
  return (value + kGranule - 1) / kGranule * kGranule;
}

// The same tensors in buffers of their groups, cut for so many files.
SavedLayout layout_for(const SavedLayout& source, std::int64_t num_files) {
  SavedLayout layout = source;
  std::vector<std::int64_t> numel(layout.groups.size());
  for (SavedTensor& tensor : layout.tensors) {
    std::int64_t& end = numel[static_cast<std::size_t>(tensor.group)];
    tensor.pieces.clear();
    tensor.offset = end;
    end = rounded_up(end + tensor.shape.numel());
  }
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    layout.groups[i].part = std::max(rounded_up((numel[i] + num_files - 1) / num_files), kGranule);
  }
  return layout;
}

class Rewriting {
 public:
  // Layouts and reader outlive it.
  Rewriting(FileSystem& files, CheckpointReader& source, const Manifest& manifest,
            const std::function<void(std::uint64_t nbytes)>& each)
      : files_(files),
        source_(source),
        metadata_(metadata_of(manifest)),
        layout_(manifest.layout),
        index_(layout_),
        each_(each) {}

  SavedFile write(const std::filesystem::path& staging, std::int64_t file) {
    const std::vector<HeldPiece> pieces = index_.pieces_of(file);
    const std::string name = rank_file_name(file);
    BlockFileWriter writer(files_, staging / name, metadata_, index_.specs_of(pieces));
    for (const HeldPiece& piece : pieces) {
      Parts parts(source_, source_.manifest().layout.tensors[piece.tensor],
                  layout_.groups[piece.group].planes[piece.plane]);
      for (std::int64_t begin = piece.elements.begin; begin < piece.elements.end;
           begin += Parts::kElements) {
        const std::span<const std::byte> part =
            parts.read({begin, std::min(begin + Parts::kElements, piece.elements.end)});
        writer.append(part);
        each_(part.size());
      }
    }
    return {name, writer.finish()};
  }

 private:
  FileSystem& files_;
  CheckpointReader& source_;
  std::map<std::string, std::string> metadata_;
  const SavedLayout& layout_;
  LayoutIndex index_;
  const std::function<void(std::uint64_t nbytes)>& each_;
};

void check_objects(const Manifest& manifest, std::int64_t num_ranks) {
  for (const auto& [name, object] : manifest.objects) {
    check<ConfigError>(
        object.kind == SavedObject::Kind::Replicated || num_ranks == manifest.num_ranks,
        "checkpoint of step {}: object '{}' is of {} ranks, each of which has its own: it "
        "cannot be cut for {}",
        manifest.step, name, manifest.num_ranks, num_ranks);
  }
}

}  // namespace

std::uint64_t values_nbytes(const SavedLayout& layout) {
  std::uint64_t nbytes = 0;
  for (const SavedTensor& tensor : layout.tensors) {
    nbytes +=
        static_cast<std::uint64_t>(tensor.shape.numel()) * element_nbytes(group_of(layout, tensor));
  }
  return nbytes;
}

std::filesystem::path reshard(FileSystem& files, CheckpointReader& source,
                              const std::filesystem::path& folder, std::int64_t num_ranks,
                              const std::function<void(std::uint64_t nbytes)>& each) {
  check_objects(source.manifest(), num_ranks);
  Manifest manifest = source.manifest();
  const std::filesystem::path path = folder / step_folder_name(manifest.step);
  check<ConfigError>(!files.kind_of(path), "{}: is there already: give another folder",
                     path.string());
  manifest.attempt = make_attempt();
  manifest.num_ranks = num_ranks;
  manifest.layout = layout_for(source.manifest().layout, num_ranks);
  manifest.files.clear();
  const std::filesystem::path staging =
      make_staging(files, folder, manifest.step, manifest.attempt);
  try {
    Rewriting rewriting(files, source, manifest, each);
    for (std::int64_t file = 0; file < num_ranks; ++file) {
      // Of many ranks most have no values, and the caller may want to end it there too.
      each(0);
      manifest.files.push_back(rewriting.write(staging, file));
    }
    write_manifest(files, staging, manifest);
    return commit_staging(files, folder, manifest.step, manifest.attempt);
  } catch (...) {
    try {
      discard_staging(files, folder, manifest.step, manifest.attempt);
    } catch (const Error& error) {
      // What went wrong first says more.
      log_warning("{}", error.what());
    }
    throw;
  }
}

}  // namespace fsdptrain::checkpoint
