#include "tests/support/memory_files.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/random.h"

namespace fsdptrain::testing {

namespace fs = std::filesystem;

using checkpoint::EntryKind;
using checkpoint::FolderEntry;
using checkpoint::ReadableFile;
using checkpoint::WritableFile;

namespace {

constexpr std::size_t kSector = 512;

}  // namespace

struct MemoryFiles::Node {
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  bool is_folder = false;
  // Of a file, now and at its last sync.
  std::vector<std::byte> bytes;
  std::vector<std::byte> synced_bytes;
  // Of a folder, likewise.
  Names names;
  Names synced_names;
};

struct MemoryFiles::State {
  std::shared_ptr<Node> root;
  mutable std::mutex mutex;
  std::uint64_t used = 0;
  std::uint64_t capacity = ~std::uint64_t{0};
};

namespace {

using Node = MemoryFiles::Node;
using State = MemoryFiles::State;

// Null where there is nothing.
std::shared_ptr<Node> find(const State& state, const fs::path& path) {
  std::shared_ptr<Node> node = state.root;
  for (const fs::path& part : path.lexically_normal().relative_path()) {
    // Of a path that ends in a slash.
    if (part.empty()) {
      continue;
    }
    const auto next = node->names.find(part.string());
    if (!node->is_folder || next == node->names.end()) {
      return nullptr;
    }
    node = next->second;
  }
  return node;
}

// The folder around a path that shall be made, renamed or removed.
Node& parent_of(const State& state, const fs::path& path, const char* what) {
  const std::shared_ptr<Node> parent = find(state, path.parent_path());
  if (!parent || !parent->is_folder) {
    fail_path(path, what, parent ? ENOTDIR : ENOENT);
  }
  return *parent;
}

Node& existing(const State& state, const fs::path& path, bool is_folder, const char* what) {
  const std::shared_ptr<Node> node = find(state, path);
  if (!node || node->is_folder != is_folder) {
    fail_path(path, what, !node ? ENOENT : is_folder ? ENOTDIR : EISDIR);
  }
  return *node;
}

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(fs::path path, std::shared_ptr<State> state, std::shared_ptr<Node> node)
      : path_(std::move(path)),
        state_(std::move(state)),
        node_(std::move(node)),
        size_(node_->bytes.size()) {}

  const fs::path& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

 protected:
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard lock(state_->mutex);
    const std::vector<std::byte>& bytes = node_->bytes;
    const std::size_t count =
        offset < bytes.size() ? std::min(out.size(), bytes.size() - offset) : 0;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(count == 0 ? 0 : offset), count,
                out.begin());
    return count;
  }

 private:
  fs::path path_;
  std::shared_ptr<State> state_;
  std::shared_ptr<Node> node_;
  std::uint64_t size_;
};

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(fs::path path, std::shared_ptr<State> state, std::shared_ptr<Node> node)
      : path_(std::move(path)), state_(std::move(state)), node_(std::move(node)) {}

  const fs::path& path() const override { return path_; }
  void begin_sync(std::uint64_t /*offset*/, std::uint64_t /*nbytes*/) override {}
  void sync() override {
    const std::lock_guard lock(state_->mutex);
    node_->synced_bytes = node_->bytes;
  }
  void close() override {}

 protected:
  std::size_t write_some(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(state_->mutex);
    std::vector<std::byte>& all = node_->bytes;
    const std::uint64_t most =
        all.size() + (state_->capacity - std::min(state_->capacity, state_->used));
    const std::size_t count =
        offset < most ? std::min<std::uint64_t>(bytes.size(), most - offset) : 0;
    if (count == 0) {
      fail_path(path_, "writing", ENOSPC);
    }
    const std::size_t size = std::max<std::size_t>(all.size(), offset + count);
    state_->used += size - all.size();
    all.resize(size);
    std::copy_n(bytes.begin(), count, all.begin() + static_cast<std::ptrdiff_t>(offset));
    return count;
  }

 private:
  fs::path path_;
  std::shared_ptr<State> state_;
  std::shared_ptr<Node> node_;
};

// Coins of one power loss, one after the other.
class Coins {
 public:
  explicit Coins(std::uint64_t seed) : seed_(seed) {}
  bool next() { return philox(count_++, 0, seed_).word[0] % 2 == 0; }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

std::vector<std::byte> torn(const Node& file, Coins& coins) {
  if (file.bytes == file.synced_bytes) {
    return file.bytes;
  }
  std::vector<std::byte> bytes((coins.next() ? file.bytes : file.synced_bytes).size());
  for (std::size_t begin = 0; begin < bytes.size(); begin += kSector) {
    const std::vector<std::byte>& source = coins.next() ? file.bytes : file.synced_bytes;
    const std::size_t end = std::min({begin + kSector, bytes.size(), source.size()});
    if (begin < end) {
      std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(begin), end - begin,
                  bytes.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
  return bytes;
}

using Copies = std::map<const Node*, std::shared_ptr<Node>>;

std::shared_ptr<Node> left_of(const Node& node, Coins& coins, Copies& copies) {
  std::shared_ptr<Node>& copy = copies[&node];
  if (copy) {
    return copy;
  }
  copy = std::make_shared<Node>();
  const std::shared_ptr<Node> left = copy;
  left->is_folder = node.is_folder;
  left->bytes = torn(node, coins);
  left->synced_bytes = left->bytes;
  Node::Names both = node.names;
  both.insert(node.synced_names.begin(), node.synced_names.end());
  for (const auto& [name, unused] : both) {
    const auto now = node.names.find(name);
    const auto before = node.synced_names.find(name);
    const bool is_synced = now != node.names.end() && before != node.synced_names.end() &&
                           now->second == before->second;
    const bool take_now = is_synced || coins.next();
    const auto taken = take_now ? now : before;
    if (taken != (take_now ? node.names.end() : node.synced_names.end())) {
      left->names[name] = left_of(*taken->second, coins, copies);
    }
  }
  left->synced_names = left->names;
  return left;
}

std::uint64_t nbytes_of(const Node& node) {
  std::uint64_t nbytes = node.bytes.size();
  for (const auto& [name, inner] : node.names) {
    nbytes += nbytes_of(*inner);
  }
  return nbytes;
}

}  // namespace

MemoryFiles::MemoryFiles() : MemoryFiles(std::make_shared<Node>()) {}

MemoryFiles::MemoryFiles(std::shared_ptr<Node> root) : state_(std::make_shared<State>()) {
  root->is_folder = true;
  state_->used = nbytes_of(*root);
  state_->root = std::move(root);
}

std::unique_ptr<ReadableFile> MemoryFiles::open(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  const std::shared_ptr<Node> node = find(*state_, path);
  check<DataError>(node != nullptr, "{}: there is no such file", path.string());
  check<DataError>(!node->is_folder, "{}: must be a regular file, got a folder", path.string());
  return std::make_unique<MemoryReadableFile>(path, state_, node);
}

std::unique_ptr<WritableFile> MemoryFiles::create(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  Node& parent = parent_of(*state_, path, "creating the file");
  const auto [place, is_new] = parent.names.emplace(path.filename().string(), nullptr);
  check<PathError>(is_new, "{}: creating the file failed: there is something of this name already",
                   path.string());
  place->second = std::make_shared<Node>();
  return std::make_unique<MemoryWritableFile>(path, state_, place->second);
}

bool MemoryFiles::make_folder(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  Node& parent = parent_of(*state_, path, "creating the folder");
  const auto [place, is_new] = parent.names.emplace(path.filename().string(), nullptr);
  if (is_new) {
    place->second = std::make_shared<Node>();
    place->second->is_folder = true;
  }
  return is_new;
}

std::vector<FolderEntry> MemoryFiles::list(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  const std::shared_ptr<Node> folder = find(*state_, path);
  check<DataError>(folder && folder->is_folder, "{}: there is no such folder", path.string());
  std::vector<FolderEntry> entries;
  for (const auto& [name, node] : folder->names) {
    entries.push_back(
        {.name = name, .kind = node->is_folder ? EntryKind::Folder : EntryKind::File});
  }
  return entries;
}

std::optional<EntryKind> MemoryFiles::kind_of(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  const std::shared_ptr<Node> node = find(*state_, path);
  return !node             ? std::nullopt
         : node->is_folder ? std::optional(EntryKind::Folder)
                           : std::optional(EntryKind::File);
}

void MemoryFiles::rename(const fs::path& from, const fs::path& to) {
  const std::lock_guard lock(state_->mutex);
  Node& old_parent = parent_of(*state_, from, "renaming");
  const auto old_place = old_parent.names.find(from.filename().string());
  if (old_place == old_parent.names.end()) {
    fail_path(from, "renaming", ENOENT);
  }
  Node& new_parent = parent_of(*state_, to, "renaming");
  const std::shared_ptr<Node> node = old_place->second;
  std::shared_ptr<Node>& place = new_parent.names[to.filename().string()];
  if (place && node->is_folder) {
    fail<IoError>("{}: giving {} this name failed: there is something of this name already",
                  to.string(), from.string());
  }
  if (place && place->is_folder) {
    fail_path(to, "renaming", EISDIR);
  }
  if (place && place != node) {
    state_->used -= place->bytes.size();
  }
  place = node;
  if (&old_parent != &new_parent || from.filename() != to.filename()) {
    old_parent.names.erase(from.filename().string());
  }
}

void MemoryFiles::remove_file(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  state_->used -= existing(*state_, path, false, "removing the file").bytes.size();
  parent_of(*state_, path, "removing the file").names.erase(path.filename().string());
}

void MemoryFiles::remove_folder(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  if (!existing(*state_, path, true, "removing the folder").names.empty()) {
    fail_path(path, "removing the folder", ENOTEMPTY);
  }
  parent_of(*state_, path, "removing the folder").names.erase(path.filename().string());
}

void MemoryFiles::sync_folder(const fs::path& path) {
  const std::lock_guard lock(state_->mutex);
  Node& folder = existing(*state_, path, true, "writing the folder to the device");
  folder.synced_names = folder.names;
}

std::unique_ptr<MemoryFiles> MemoryFiles::after_power_loss(std::uint64_t seed) const {
  const std::lock_guard lock(state_->mutex);
  Coins coins(seed);
  Copies copies;
  return std::make_unique<MemoryFiles>(left_of(*state_->root, coins, copies));
}

void MemoryFiles::set_capacity(std::uint64_t nbytes) {
  const std::lock_guard lock(state_->mutex);
  state_->capacity = nbytes;
}

std::uint64_t MemoryFiles::free_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->capacity - std::min(state_->capacity, state_->used);
}

}  // namespace fsdptrain::testing
