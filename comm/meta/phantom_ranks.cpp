#include "comm/meta/phantom_ranks.h"

#include <numeric>
#include <utility>

#include "comm/ranks.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

int checked_rank(int rank, int size) {
  check<ConfigError>(size >= 1 && size <= kMaxWorldSize,
                     "the number of ranks must be 1 to {}, got {}", kMaxWorldSize, size);
  check<ConfigError>(rank >= 0 && rank < size, "rank {} is none of the {} ranks 0 to {}", rank,
                     size, size - 1);
  return rank;
}

}  // namespace

PhantomRanks::PhantomRanks(int rank, int size, Device device)
    : carrier_(checked_rank(rank, size), device) {
  check<DeviceError>(device.type != DeviceType::Cuda,
                     "ranks without partners are on the CPU or on meta, got {}", device);
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  group_ = std::make_unique<ProcessGroup>(carrier_, Members{std::move(all), rank},
                                          ProcessGroup::Options{.name = "world"});
}

std::unique_ptr<ProcessGroup> PhantomRanks::new_group(std::vector<int> ranks, std::string name) {
  const int index = index_in_group(name, ranks, rank(), size());
  return std::make_unique<ProcessGroup>(carrier_, Members{std::move(ranks), index},
                                        ProcessGroup::Options{.name = std::move(name)});
}

DeviceMesh::Options mesh_options(PhantomRanks& ranks) {
  return {.rank = ranks.rank(),
          .world_size = ranks.size(),
          .make_group =
              [&ranks](std::span<const int> members, std::string name) {
                return ranks.new_group({members.begin(), members.end()}, std::move(name));
              },
          .exchange =
              [&ranks](const std::string& own) {
                return std::vector<std::string>(static_cast<std::size_t>(ranks.size()), own);
              }};
}

}  // namespace fsdptrain::comm
