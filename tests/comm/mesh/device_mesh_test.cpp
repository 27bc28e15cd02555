#include "comm/mesh/device_mesh.h"

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/process_group.h"
#include "comm/world.h"
#include "runtime/base/error.h"
#include "tests/support/rank_backends.h"

namespace fsdptrain::comm {

namespace {

// Stands for a group where the ranks of a mesh are not there: a mesh keeps groups and gives them
// out, it never looks into one. Knows what it was made of, and counts itself.
struct FakeGroup {
  FakeGroup(std::vector<int> its_ranks, int& num_alive)
      : ranks(std::move(its_ranks)), num_alive_(num_alive) {
    ++num_alive_;
  }
  FakeGroup(const FakeGroup&) = delete;
  FakeGroup& operator=(const FakeGroup&) = delete;
  ~FakeGroup() { --num_alive_; }

  std::vector<int> ranks;

 private:
  int& num_alive_;
};

std::shared_ptr<ProcessGroup> fake_group(std::span<const int> ranks, int& num_alive) {
  auto group = std::make_shared<FakeGroup>(std::vector<int>(ranks.begin(), ranks.end()), num_alive);
  return {group, reinterpret_cast<ProcessGroup*>(group.get())};
}

const std::vector<int>& ranks_of(const ProcessGroup& group) {
  return reinterpret_cast<const FakeGroup&>(group).ranks;
}

using doctest::Contains;
using Ranks = std::vector<int>;

// Ranks that are threads; each has its text in `texts` between two barriers.
class FakeWorld {
 public:
  explicit FakeWorld(int size) : texts_(static_cast<std::size_t>(size)), barrier_(size) {}

  // Runs `body(rank)` on all ranks and gives what each threw, or "".
  std::vector<std::string> run(const std::function<void(int rank)>& body) {
    std::vector<std::string> errors(texts_.size());
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < texts_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(static_cast<int>(rank));
        } catch (const ConfigError& error) {
          errors[rank] = std::string("ConfigError ") + error.what();
        } catch (const MismatchError& error) {
          errors[rank] = std::string("MismatchError ") + error.what();
        }
      });
    }
    threads.clear();
    return errors;
  }

  DeviceMesh::Exchange exchange(int rank) {
    return [this, rank](std::string own) {
      texts_[static_cast<std::size_t>(rank)] = std::move(own);
      barrier_.arrive_and_wait();
      std::vector<std::string> all = texts_;
      barrier_.arrive_and_wait();
      if (rank == 0) {
        ++num_exchanges;
      }
      return all;
    };
  }

  int num_exchanges = 0;

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

// One rank by itself, for whom the others say what it says.
struct OneRank {
  DeviceMesh::Options options(int rank, int world_size) {
    return {.rank = rank,
            .world_size = world_size,
            .make_group =
                [this](std::span<const int> ranks, std::string name) {
                  made.push_back(name);
                  return fake_group(ranks, num_alive);
                },
            .exchange =
                [world_size](std::string own) {
                  return std::vector<std::string>(static_cast<std::size_t>(world_size), own);
                },
            .make_groups_now = true};
  }

  int num_alive = 0;
  std::vector<std::string> made;
};

using Made = std::vector<std::string>;

DeviceMesh::MakeGroup no_groups() {
  return [](std::span<const int>, std::string) -> std::shared_ptr<ProcessGroup> { return nullptr; };
}

}  // namespace

TEST_SUITE("comm/device_mesh") {
  TEST_CASE("a rank knows where it stands and has the group of each axis") {
    OneRank one;
    const DeviceMesh mesh({{"replicate", 2}, {"shard", 4}}, one.options(6, 8));
    CHECK(one.made == Made{"replicate", "shard"});
    CHECK(mesh.rank() == 6);
    CHECK(mesh.size("shard") == 4);
    CHECK(mesh.coordinate("replicate") == 1);
    CHECK(mesh.coordinate("shard") == 2);
    CHECK(mesh.layout().text() == "replicate=2 x shard=4");
    CHECK(ranks_of(mesh.group("replicate")) == Ranks{2, 6});
    CHECK(ranks_of(mesh.group("shard")) == Ranks{4, 5, 6, 7});
    CHECK(one.made.size() == 2);
    CHECK(ranks_of(mesh.group_along({"replicate", "shard"})) == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(one.made.back() == "replicate+shard");
    CHECK_THROWS_WITH_AS(mesh.group("shrad"), Contains("did you mean shard?"), ConfigError);
  }

  TEST_CASE("groups that are made lazily are made once, when they are asked for") {
    OneRank one;
    DeviceMesh::Options options = one.options(1, 4);
    options.make_groups_now = false;
    const DeviceMesh mesh({{"a", 2}, {"b", 2}}, options);
    CHECK(one.made.empty());
    ProcessGroup& group = mesh.group("b");
    CHECK(ranks_of(group) == Ranks{0, 1});
    CHECK(&mesh.group("b") == &group);
    CHECK(&mesh.submesh({"b"}).group("b") == &group);
    CHECK(one.made == Made{"b"});
  }

  TEST_CASE("meshes made from one another share groups, which end with the last") {
    OneRank one;
    {
      auto mesh = std::make_unique<DeviceMesh>(std::vector<MeshAxis>{{"a", 2}, {"b", 2}, {"c", 2}},
                                               one.options(5, 8));
      const DeviceMesh part = mesh->submesh({"a", "c"});
      CHECK(part.layout().text() == "a=2 x c=2");
      CHECK(part.coordinate("a") == 1);
      CHECK(&part.group("a") == &mesh->group("a"));
      const DeviceMesh flat = mesh->flatten({"a", "c"}, "ac");
      CHECK(flat.layout().text() == "ac=4 x b=2");
      CHECK(flat.coordinate("ac") == 3);
      CHECK(ranks_of(flat.group("ac")) == Ranks{0, 1, 4, 5});
      CHECK(&mesh->group_along({"a", "c"}) == &flat.group("ac"));
      CHECK(&part.flatten({"a", "c"}, "other").group("other") == &flat.group("ac"));
      CHECK(one.made == Made{"a", "b", "c", "ac"});
      mesh.reset();
      CHECK(one.num_alive == 4);
      CHECK(ranks_of(part.group("c")) == Ranks{4, 5});
    }
    CHECK(one.num_alive == 0);
  }

  TEST_CASE("axes that differ by axes of size 1 have one group") {
    OneRank one;
    const DeviceMesh mesh({{"replicate", 1}, {"shard", 4}}, one.options(2, 4));
    CHECK(one.made == Made{"replicate", "shard"});
    CHECK(ranks_of(mesh.group("replicate")) == Ranks{2});
    CHECK(&mesh.group_along({"replicate", "shard"}) == &mesh.group("shard"));
    CHECK(one.made.size() == 2);
  }

  TEST_CASE("an error of a group says which it is, and keeps its type") {
    OneRank one;
    DeviceMesh::Options options = one.options(1, 4);
    options.make_group = [](std::span<const int>, std::string) -> std::shared_ptr<ProcessGroup> {
      throw TimeoutError("rank 0 has not come");
    };
    CHECK_THROWS_WITH_AS(
        DeviceMesh({{"a", 2}, {"b", 2}}, options),
        Contains("device mesh a=2 x b=2: the group along a of ranks 1, 3: rank 0 has not come"),
        TimeoutError);
    options.make_group = no_groups();
    CHECK_THROWS_WITH_AS(DeviceMesh({{"a", 4}}, options),
                         Contains("device mesh a=4: the group along a of ranks 0-3 was not made"),
                         MisuseError);
  }

  TEST_CASE("options that cannot be are refused") {
    OneRank one;
    const auto expect = [&]<class E>(const DeviceMesh::Options& options, const char* text,
                                     const E*) {
      CHECK_THROWS_WITH_AS(DeviceMesh({{"a", 4}}, options), Contains(text), E);
    };
    const ConfigError* const config = nullptr;
    expect(one.options(4, 4), "device mesh: the rank must be 0 to 3, got 4", config);
    expect(one.options(-1, 4), "device mesh: the rank must be 0 to 3, got -1", config);
    expect(one.options(0, 0), "device mesh: the world size must be 1 to 1048576, got 0", config);
    DeviceMesh::Options options = one.options(0, 4);
    options.exchange = nullptr;
    const char* const missing = "device mesh: must have a way to make groups and to exchange texts";
    const MisuseError* const misuse = nullptr;
    expect(options, missing, misuse);
    options = one.options(0, 4);
    options.make_group = nullptr;
    expect(options, missing, misuse);
    options = one.options(3, 4);
    const ProtocolError* const protocol = nullptr;
    options.exchange = [](std::string own) { return std::vector<std::string>(3, own); };
    expect(options, "an exchange must give the texts of 4 ranks, got 3", protocol);
    options.exchange = [](const std::string&) { return std::vector<std::string>(4, "x"); };
    expect(options, "an exchange must give back the text of this rank 3, got \"x\"", protocol);
  }

  TEST_CASE("ranks that ask for one mesh exchange one hash, and agree on parts of it") {
    FakeWorld world(8);
    std::vector<int> num_alive(8, 0);
    const auto errors = world.run([&](int rank) {
      const DeviceMesh::Options options = {
          .rank = rank,
          .world_size = 8,
          .make_group =
              [&](std::span<const int> ranks, const std::string&) {
                return fake_group(ranks, num_alive[static_cast<std::size_t>(rank)]);
              },
          .exchange = world.exchange(rank)};
      const DeviceMesh mesh({{"a", 2}, {"b", 2}, {"c", 2}}, options);
      // Each rank has another part.
      mesh.submesh({"a", "c"}).flatten({"a", "c"}, "ac");
    });
    CHECK(errors == std::vector<std::string>(8));
    CHECK(world.num_exchanges == 2);
    CHECK(num_alive == Ranks(8, 0));
  }

  TEST_CASE("ranks that ask for different meshes all get one error that names them") {
    FakeWorld world(4);
    const auto errors = world.run([&](int rank) {
      const std::vector<MeshAxis> axes = {{"replicate", 2}, {rank == 3 ? "shrad" : "shard", 2}};
      DeviceMesh(axes, {.rank = rank,
                        .world_size = 4,
                        .make_group = no_groups(),
                        .exchange = world.exchange(rank)});
    });
    for (const std::string& error : errors) {
      CHECK(error == errors[0]);
    }
    CHECK_MESSAGE(
        errors[0].starts_with("MismatchError device mesh: all ranks must ask for the same mesh: "
                              "ranks 0-2 ask for replicate=2 x shard=2; rank 3 asks for "
                              "replicate=2 x shrad=2 (axis 1 is named 'shrad' instead of 'shard')"),
        errors[0]);
    // A hash, the texts, and the wait until all have them.
    CHECK(world.num_exchanges == 3);
  }

  TEST_CASE("a rank that refuses its mesh tells the others, and none waits") {
    FakeWorld world(4);
    const auto errors = world.run([&](int rank) {
      const std::vector<MeshAxis> axes = {{"replicate", 2}, {"shard", rank == 1 ? 3 : 2}};
      DeviceMesh(axes, {.rank = rank,
                        .world_size = 4,
                        .make_group = no_groups(),
                        .exchange = world.exchange(rank)});
    });
    const std::string why =
        "device mesh replicate=2 x shard=3: the product of its sizes must be the world size 4";
    CHECK_MESSAGE(errors[1].starts_with("ConfigError " + why), errors[1]);
    for (const int rank : {0, 2, 3}) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      CHECK_MESSAGE(error.starts_with("MismatchError device mesh: all ranks must ask for the same "
                                      "mesh: ranks 0, 2-3 ask for replicate=2 x shard=2; rank 1 "
                                      "refused: " +
                                      why),
                    error);
    }
  }

  TEST_CASE("ranks that flatten different axes all get one error") {
    FakeWorld world(4);
    const auto errors = world.run([&](int rank) {
      int num_alive = 0;
      const DeviceMesh mesh(
          {{"a", 2}, {"b", 2}},
          {.rank = rank,
           .world_size = 4,
           .make_group = [&](std::span<const int> ranks,
                             const std::string&) { return fake_group(ranks, num_alive); },
           .exchange = world.exchange(rank)});
      mesh.flatten({"a", "b"}, rank == 2 ? "ba" : "ab");
    });
    for (const std::string& error : errors) {
      CHECK_MESSAGE(error.find("ranks 0-1, 3 ask for ab=4; rank 2 asks for ba=4 (axis 0 is named "
                               "'ba' instead of 'ab')") != std::string::npos,
                    error);
    }
  }

  TEST_CASE(
      "real ranks that ask for different meshes all get the same text, and a rank its own error") {
    for (int round = 0; round < 20; ++round) {
      CAPTURE(round);
      ThreadRanks ranks = testing::thread_ranks(testing::Backend::Threads, 4);
      ranks.delay_seed = static_cast<std::uint64_t>(round);
      std::vector<std::string> texts(4);
      try_ranks(ranks, [&](World& world) {
        try {
          const bool differs = world.rank() == 3;
          DeviceMesh({{"a", 2}, {differs ? "c" : "b", 2}}, mesh_options(world));
        } catch (const MismatchError& error) {
          texts[static_cast<std::size_t>(world.rank())] = error.what();
          throw;
        }
      });
      CHECK_FALSE(texts[0].empty());
      CHECK(texts == std::vector<std::string>(4, texts[0]));
      std::vector<std::string> types(4);
      ranks = testing::thread_ranks(testing::Backend::Threads, 4);
      ranks.delay_seed = static_cast<std::uint64_t>(round);
      try_ranks(ranks, [&](World& world) {
        std::string& type = types[static_cast<std::size_t>(world.rank())];
        try {
          DeviceMesh({{"a", 2}, {"b", world.rank() == 1 ? 3 : 2}}, mesh_options(world));
        } catch (const ConfigError&) {
          type = "config";
          throw;
        } catch (const MismatchError&) {
          type = "mismatch";
          throw;
        }
      });
      CHECK(types == std::vector<std::string>{"mismatch", "config", "mismatch", "mismatch"});
    }
  }

  TEST_CASE("the groups of a mesh over real ranks run along its axes") {
    run_ranks(testing::thread_ranks(testing::Backend::Shm, 4), [](World& world) {
      const DeviceMesh mesh({{"replicate", 2}, {"shard", 2}}, mesh_options(world));
      const Tensor tensor = Tensor::full({3}, 1 << world.rank());
      mesh.group("shard").issue(all_reduce(tensor)).wait();
      CHECK(tensor.item() == (world.rank() < 2 ? 3 : 12));
      mesh.group("replicate").issue(all_reduce(tensor)).wait();
      CHECK(tensor.item() == 15);
      CHECK(mesh.flatten({"replicate", "shard"}, "all").group("all").size() == 4);
    });
  }
}

}  // namespace fsdptrain::comm
