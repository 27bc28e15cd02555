#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/plan/read_plan.h"
#include "runtime/base/thread_pool.h"

namespace fsdptrain::checkpoint {

// A checkpoint as one process reads it, without ranks: any range of any plane of any tensor,
// verified, from the files and blocks that have it and no others. DataError for whatever is
// damaged, naming file and offset. One thread uses it; `files` and `pool` outlive it.
class CheckpointReader {
 public:
  // The threads of `pool` read and verify; without one the calling thread does.
  CheckpointReader(FileSystem& files, std::filesystem::path folder, Manifest manifest,
                   ThreadPool* pool = nullptr);
  // Reads the manifest, and looks whether all files are there.
  static CheckpointReader open(FileSystem& files, const std::filesystem::path& folder);
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;
  ~CheckpointReader();

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // Null where there is none of this name.
  const SavedTensor* find(std::string_view name) const;

  // Elements of a plane of a tensor, row-major, in the dtype of the plane.
  struct Want {
    const SavedTensor* tensor = nullptr;
    std::string plane = kParameters;
    kernels::Range elements;
    // As many bytes as the elements have.
    std::span<std::byte> out;
  };
  // In any order: each file is opened once, and read from its beginning to its end. Where a tensor
  // was saved in boxes, what lies between two rows of it is read too.
  void read(std::span<const Want> wants);

  // What was opened and asked for so far: files, also again, and pieces.
  struct Counts {
    std::int64_t files = 0;
    std::int64_t pieces = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Source;
  struct OpenFile;

  void add_sources(std::vector<Source>& sources, const Want& want) const;
  OpenFile& file_of(std::int64_t file);
  void read_from(std::int64_t file, std::span<Source> sources);
  void read_source(OpenFile& file, const Source& source);

  FileSystem& files_;
  std::filesystem::path folder_;
  Manifest manifest_;
  ThreadPool* pool_;
  ReadPlanner planner_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  // The last used first.
  std::list<OpenFile> open_;
  Counts counts_;
};

}  // namespace fsdptrain::checkpoint
