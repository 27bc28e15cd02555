#include "comm/mesh/device_mesh.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "comm/error.h"
#include "comm/mesh/text.h"
#include "comm/process_group.h"
#include "comm/ranks.h"
#include "comm/world.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {

struct DeviceMesh::Shared {
  Options options;
  // By their ranks: axes that differ only in axes of size 1 have the same group, on all ranks
  // alike.
  std::map<std::vector<int>, std::shared_ptr<ProcessGroup>> groups;
};

namespace {

std::vector<std::string> exchange(const DeviceMesh::Options& options, const std::string& own) {
  std::vector<std::string> texts = options.exchange(own);
  const auto rank = static_cast<std::size_t>(options.rank);
  check<ProtocolError>(texts.size() == static_cast<std::size_t>(options.world_size),
                       "device mesh: an exchange must give the texts of {} ranks, got {}",
                       options.world_size, texts.size());
  check<ProtocolError>(texts[rank] == own,
                       "device mesh: an exchange must give back the text of this rank {}, got {}",
                       rank, in_quotes(texts[rank]));
  return texts;
}

constexpr const char* kRefused = "refused";

// Compares what this rank asks for with all others. Hashes tell in nearly all runs; where they
// differ, every rank sees it and gives its text.
std::vector<std::string> texts_if_different(const DeviceMesh::Options& options,
                                            const std::string& hash, const std::string& text) {
  const auto hashes = exchange(options, hash);
  const bool is_equal =
      std::ranges::adjacent_find(hashes, std::ranges::not_equal_to{}) == hashes.end();
  return is_equal ? std::vector<std::string>{} : exchange(options, text);
}

void check_options(const DeviceMesh::Options& options) {
  check<MisuseError>(options.make_group && options.exchange,
                     "device mesh: must have a way to make groups and to exchange texts");
  check<ConfigError>(options.world_size >= 1 && options.world_size <= kMaxWorldSize,
                     "device mesh: the world size must be 1 to {}, got {}", kMaxWorldSize,
                     options.world_size);
  check<ConfigError>(options.rank >= 0 && options.rank < options.world_size,
                     "device mesh: the rank must be 0 to {}, got {}", options.world_size - 1,
                     options.rank);
}

// Before a rank ends with an error, which ends the others' waits: they have their own error by
// then.
void wait_until_all_know(const DeviceMesh::Options& options) {
  try {
    options.exchange("");
  } catch (const CommError&) {
    // Somebody knew first, and has ended.
  }
}

// A layout that all ranks agree on. A rank that cannot make one tells the others: they would wait
// for it else.
MeshLayout agreed_layout(const DeviceMesh::Options& options,
                         const std::function<MeshLayout()>& make) {
  check_options(options);
  std::optional<MeshLayout> layout;
  try {
    layout = make();
  } catch (const ConfigError& error) {
    texts_if_different(options, kRefused, refusal_text(error.what()));
    wait_until_all_know(options);
    throw;
  }
  const std::string text = layout->num_ranks() == options.world_size
                               ? layout->canonical_text()
                               : to_text({layout->axes(), "of each rank"});
  const auto texts = texts_if_different(options, fmt::format("{:016x}", hash_of(text)), text);
  try {
    check_same_mesh(texts);
  } catch (const MismatchError&) {
    wait_until_all_know(options);
    throw;
  }
  return *std::move(layout);
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<MeshAxis> axes, const Options& options)
    : DeviceMesh(
          agreed_layout(options, [&] { return MeshLayout(std::move(axes), options.world_size); }),
          std::make_shared<Shared>(Shared{options, {}})) {}

DeviceMesh::DeviceMesh(MeshLayout layout, std::shared_ptr<Shared> shared)
    : layout_(std::move(layout)), shared_(std::move(shared)) {
  if (shared_->options.make_groups_now) {
    for (const MeshAxis& axis : layout_.axes()) {
      group(axis.name);
    }
  }
}

int DeviceMesh::rank() const {
  return shared_->options.rank;
}

int DeviceMesh::coordinate(std::string_view axis) const {
  return layout_.coordinate(rank())[layout_.index_of(axis)];
}

ProcessGroup& DeviceMesh::group_along(const std::vector<std::string>& axes) const {
  std::vector<int> ranks = layout_.group_of(rank(), axes);
  auto made = shared_->groups.find(ranks);
  if (made == shared_->groups.end()) {
    const std::string name = fmt::format("{}", fmt::join(axes, "+"));
    std::shared_ptr<ProcessGroup> group;
    try {
      group = shared_->options.make_group(ranks, name);
    } catch (Error& error) {
      error.add_context(fmt::format("device mesh {}: the group along {} of {}", layout_.text(),
                                    name, named_ranks(ranks)));
      throw;
    }
    check<MisuseError>(group != nullptr, "device mesh {}: the group along {} of {} was not made",
                       layout_.text(), name, named_ranks(ranks));
    made = shared_->groups.emplace(std::move(ranks), std::move(group)).first;
  }
  return *made->second;
}

DeviceMesh DeviceMesh::submesh(const std::vector<std::string>& axes) const {
  return {layout_.submesh(rank(), axes), shared_};
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& axes,
                               const std::string& new_name) const {
  return {agreed_layout(shared_->options, [&] { return layout_.flatten(axes, new_name); }),
          shared_};
}

DeviceMesh::Options mesh_options(World& world) {
  return {.rank = world.rank(),
          .world_size = world.size(),
          .make_group =
              [&world](std::span<const int> ranks, std::string name) {
                return std::shared_ptr<ProcessGroup>(
                    world.new_group({ranks.begin(), ranks.end()}, std::move(name)));
              },
          .exchange = [&world](const std::string& own) { return world.exchange(own); }};
}

}  // namespace fsdptrain::comm
