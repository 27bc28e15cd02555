#include "checkpoint/convert/verify.h"

#include <fmt/format.h>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/plan/layout_index.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

bool is_like(const TensorEntry& entry, const TensorSpec& spec) {
  return entry.name == spec.name && entry.dtype == spec.dtype && entry.shape == spec.shape;
}

// The manifest is believed: its digest was right.
void check_entries(const BlockFileReader& reader, const std::vector<TensorSpec>& specs) {
  check<DataError>(reader.entries().size() == specs.size(),
                   "{}: header: {} tensors where the manifest has {}", reader.path().string(),
                   reader.entries().size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorEntry& entry = reader.entries()[i];
    check<DataError>(is_like(entry, specs[i]),
                     "{}: header: tensor {} is {} {} {} where the manifest has {} {} {}",
                     reader.path().string(), i, shown(entry.name), entry.dtype, entry.shape,
                     shown(specs[i].name), specs[i].dtype, specs[i].shape);
  }
}

}  // namespace

std::vector<std::string> verify(FileSystem& files, const ValidCheckpoint& checkpoint,
                                const std::function<void(std::uint64_t nbytes)>& each) {
  std::vector<std::string> problems;
  const Manifest& manifest = checkpoint.manifest;
  const LayoutIndex index(manifest.layout);
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    const SavedFile& saved = manifest.files[file];
    try {
      const BlockFileReader reader(files, checkpoint.folder / saved.name, saved.facts);
      check_entries(reader, index.specs_of(index.pieces_of(static_cast<std::int64_t>(file))));
      reader.verify(each);
    } catch (const DataError& problem) {
      problems.emplace_back(problem.what());
    }
  }
  return problems;
}

}  // namespace fsdptrain::checkpoint
