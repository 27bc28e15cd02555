#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/io/file_system.h"

// A file system in memory that can lose power: what was not synced is lost or torn.
namespace fsdptrain::testing {

// Paths are absolute; "/" is there from the beginning. Links, pipes and rights do not exist.
// Threads may call at the same time.
class MemoryFiles final : public checkpoint::FileSystem {
 public:
  // Of a file or folder.
  struct Node;
  // Guards all nodes, also for open files.
  struct State;

  MemoryFiles();
  // With this folder as "/".
  explicit MemoryFiles(std::shared_ptr<Node> root);

  std::unique_ptr<checkpoint::ReadableFile> open(const std::filesystem::path& path) override;
  std::unique_ptr<checkpoint::WritableFile> create(const std::filesystem::path& path) override;
  bool make_folder(const std::filesystem::path& path) override;
  std::vector<checkpoint::FolderEntry> list(const std::filesystem::path& path) override;
  std::optional<checkpoint::EntryKind> kind_of(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_file(const std::filesystem::path& path) override;
  void remove_folder(const std::filesystem::path& path) override;
  void sync_folder(const std::filesystem::path& path) override;

  // What a machine finds that starts again after a power loss now. Independently, and by the seed
  // alone: each name in a folder is as it was at that folder's last sync or as it is now; each 512
  // bytes of a file are as they were at the file's last sync, as they are now, or zeros where there
  // were none; the file has the old size or the new one. All of it counts as synced.
  std::unique_ptr<MemoryFiles> after_power_loss(std::uint64_t seed) const;
  // Room for the bytes of all files together; writes beyond it fail as on a full disk.
  void set_capacity(std::uint64_t nbytes);
  // What is left of it.
  std::uint64_t free_bytes() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace fsdptrain::testing
