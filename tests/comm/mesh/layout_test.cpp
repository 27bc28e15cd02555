#include "comm/mesh/layout.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/mesh/text.h"
#include "comm/ranks.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

using doctest::Contains;
using Groups = std::vector<std::vector<int>>;
using Names = std::vector<std::string>;

const Names& axis_names() {
  static const Names names = {"a", "b", "c", "d"};
  return names;
}

// Coordinates of all ranks by counting: the last index goes up first.
Groups count_coordinates(const std::vector<MeshAxis>& axes, int world_size) {
  Groups coordinates;
  std::vector<int> at(axes.size(), 0);
  for (int rank = 0; rank < world_size; ++rank) {
    coordinates.push_back(at);
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      if (++at[axis] < axes[axis].size) {
        break;
      }
      at[axis] = 0;
    }
  }
  return coordinates;
}

// Ranks that agree in all coordinates but those of `free`; with the key of each group.
std::map<std::vector<int>, std::vector<int>> groups_by_coordinates(
    const Groups& coordinates, const std::set<std::size_t>& free) {
  std::map<std::vector<int>, std::vector<int>> groups;
  for (std::size_t rank = 0; rank < coordinates.size(); ++rank) {
    std::vector<int> key = coordinates[rank];
    for (const std::size_t axis : free) {
      key[axis] = 0;
    }
    groups[key].push_back(static_cast<int>(rank));
  }
  return groups;
}

// All ways to write a number as a product of sizes, in every order, ones among them.
void for_each_factorisation(int product, int num_factors, std::vector<MeshAxis> axes,
                            const std::function<void(const std::vector<MeshAxis>&)>& body) {
  const std::string& name = axis_names()[axes.size()];
  for (int size = 1; size <= product; ++size) {
    if (product % size != 0 || (num_factors == 1 && size != product)) {
      continue;
    }
    axes.push_back({name, size});
    if (num_factors == 1) {
      body(axes);
    } else {
      for_each_factorisation(product / size, num_factors - 1, axes, body);
    }
    axes.pop_back();
  }
}

// Whether everything about the axes in `subset` is as counted.
bool is_right(const MeshLayout& mesh, const Groups& coordinates, unsigned subset) {
  Names names;
  std::set<std::size_t> free;
  std::vector<MeshAxis> axes;
  std::int64_t merged = 1;
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    if ((subset >> axis & 1) != 0) {
      names.push_back(mesh.axes()[axis].name);
      axes.push_back(mesh.axes()[axis]);
      merged *= mesh.axes()[axis].size;
      free.insert(axis);
    }
  }
  const auto want = groups_by_coordinates(coordinates, free);
  Groups want_groups;
  for (const auto& [key, group] : want) {
    want_groups.push_back(group);
    // Of the first and the last member: all others have the same way.
    for (const int rank : {group.front(), group.back()}) {
      const MeshLayout part = mesh.submesh(rank, names);
      if (mesh.group_of(rank, names) != group || !std::ranges::equal(part.ranks(), group) ||
          part.axes() != axes) {
        return false;
      }
    }
  }
  if (mesh.groups(names) != want_groups) {
    return false;
  }

  const MeshLayout flat = mesh.flatten(names, "flat");
  Groups flat_groups = flat.groups({"flat"});
  std::ranges::sort(flat_groups);
  std::ranges::sort(want_groups);
  const int last = mesh.num_ranks() - 1;
  const bool others_are_right = std::ranges::all_of(flat.axes(), [&](const MeshAxis& axis) {
    return axis.name == "flat" ||
           flat.group_of(last, {axis.name}) == mesh.group_of(last, {axis.name});
  });
  return flat.axes().size() == mesh.axes().size() - names.size() + 1 &&
         flat.size("flat") == merged && flat.num_ranks() == mesh.num_ranks() &&
         flat_groups == want_groups && others_are_right;
}

}  // namespace

TEST_SUITE("comm/mesh_layout") {
  TEST_CASE("the last axis moves fastest") {
    const MeshLayout mesh({{"replicate", 2}, {"shard", 4}}, 8);
    CHECK(mesh.coordinate(6) == std::vector<int>{1, 2});
    CHECK(mesh.size("replicate") == 2);
    CHECK(mesh.size("shard") == 4);
    CHECK(mesh.groups({"shard"}) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
    CHECK(mesh.groups({"replicate"}) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
    CHECK(mesh.groups({"replicate", "shard"}) == Groups{{0, 1, 2, 3, 4, 5, 6, 7}});
    CHECK(mesh.group_of(6, {"replicate"}) == std::vector<int>{2, 6});
    CHECK(mesh.text() == "replicate=2 x shard=4");
    CHECK(mesh.canonical_text() == "mesh 1; axes replicate=2, shard=4; ranks 0-7");
    CHECK(mesh.hash() == MeshLayout({{"replicate", 2}, {"shard", 4}}, 8).hash());
  }

  TEST_CASE("groups of every mesh of up to 64 ranks and 4 axes are those of the coordinates") {
    int num_meshes = 0;
    for (int world_size = 1; world_size <= 64; ++world_size) {
      for (int num_axes = 1; num_axes <= 4; ++num_axes) {
        for_each_factorisation(world_size, num_axes, {}, [&](const std::vector<MeshAxis>& axes) {
          ++num_meshes;
          const MeshLayout mesh(axes, world_size);
          CAPTURE(mesh.text());
          const Groups coordinates = count_coordinates(axes, world_size);
          Groups got;
          for (int rank = 0; rank < world_size; ++rank) {
            got.push_back(mesh.coordinate(rank));
          }
          REQUIRE(got == coordinates);
          for (unsigned subset = 1; subset < 1U << num_axes; ++subset) {
            CAPTURE(subset);
            REQUIRE(is_right(mesh, coordinates, subset));
          }
        });
      }
    }
    // Summed over world sizes: the number of ordered products of 1, 2, 3 and 4 factors.
    CHECK(num_meshes == 2964);
  }

  TEST_CASE("axes that are not neighbours become one in the place of the first") {
    const MeshLayout mesh({{"a", 2}, {"b", 2}, {"c", 2}}, 8);
    const MeshLayout flat = mesh.flatten({"a", "c"}, "ac");
    CHECK(flat.text() == "ac=4 x b=2");
    CHECK(std::ranges::equal(flat.ranks(), std::vector<int>{0, 2, 1, 3, 4, 6, 5, 7}));
    CHECK(flat.coordinate(6) == std::vector<int>{2, 1});
    CHECK(flat.groups({"ac"}) == Groups{{0, 1, 4, 5}, {2, 3, 6, 7}});
    // Of the same axes and sizes, but not the same mesh.
    CHECK(flat.hash() != MeshLayout({{"ac", 4}, {"b", 2}}, 8).hash());
    CHECK(flat.canonical_text() == "mesh 1; axes ac=4, b=2; ranks 0, 2, 1, 3-4, 6, 5, 7");
  }

  TEST_CASE("a sub-mesh is a mesh of its own") {
    const MeshLayout mesh({{"a", 2}, {"b", 3}, {"c", 2}}, 12);
    const MeshLayout part = mesh.submesh(9, {"a", "c"});
    CHECK(std::ranges::equal(part.ranks(), std::vector<int>{2, 3, 8, 9}));
    CHECK(part.coordinate(8) == std::vector<int>{1, 0});
    CHECK(part.groups({"a"}) == Groups{{2, 8}, {3, 9}});
    CHECK_THROWS_WITH_AS(part.coordinate(0),
                         Contains("device mesh a=2 x c=2: rank 0 is not among its ranks 2-3, 8-9"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(part.size("b"), Contains("there is no axis \"b\""), ConfigError);
  }

  TEST_CASE("everything that makes two meshes differ makes their hashes differ") {
    const std::vector<MeshLayout> meshes = {MeshLayout({{"a", 2}, {"b", 4}}, 8),
                                            MeshLayout({{"a", 4}, {"b", 2}}, 8),
                                            MeshLayout({{"b", 4}, {"a", 2}}, 8),
                                            MeshLayout({{"a", 2}, {"c", 4}}, 8),
                                            MeshLayout({{"a", 8}}, 8),
                                            MeshLayout({{"a", 8}, {"b", 1}}, 8),
                                            MeshLayout({{"a", 2}, {"b", 2}, {"c", 2}}, 8),
                                            MeshLayout({{"a", 2}, {"b", 8}}, 16)};
    std::set<std::uint64_t> hashes;
    for (const MeshLayout& mesh : meshes) {
      hashes.insert(mesh.hash());
    }
    CHECK(hashes.size() == meshes.size());
  }

  TEST_CASE("what is no mesh is refused with its values") {
    const auto expect = [](std::vector<MeshAxis> axes, int world_size, const char* text) {
      CHECK_THROWS_WITH_AS(MeshLayout(std::move(axes), world_size), Contains(text), ConfigError);
    };
    expect({}, 1, "device mesh: must have an axis");
    expect({{"", 1}}, 1, "device mesh: the name of an axis must not be empty");
    expect({{"a b", 1}}, 1, "must be letters, digits, '_', '-' and '.', got \"a b\"");
    expect({{"a=1", 1}}, 1, "got \"a=1\"");
    expect({{"a", 2}, {"b", 2}, {"a", 2}}, 8,
           "each axis must have a name of its own, got \"a\" for axes 0 and 2");
    expect({{"a", 0}}, 1, "device mesh: axis \"a\" must have a size of at least 1, got 0");
    expect({{"a", 2}, {"b", -4}}, 8, "axis \"b\" must have a size of at least 1, got -4");
    expect({{"a", 2}, {"b", 4}}, 9,
           "device mesh a=2 x b=4: the product of its sizes must be the world size 9");
    expect({{"a", 2}, {"b", 4}}, 4, "the product of its sizes must be the world size 4");
    expect({{"a", 4}, {"b", 2}}, 16, "the product of its sizes must be the world size 16");
    // 2^64 and 2^32 times 2^32 are 0 in 64 bits.
    expect({{"a", std::int64_t{1} << 62}, {"b", 4}}, 1, "a=4611686018427387904 x b=4: the product");
    expect({{"a", 1}, {"b", std::int64_t{1} << 32}, {"c", std::int64_t{1} << 32}}, 1, "product");
    expect({{"a", 1}}, 0, "device mesh a=1: the world size must be 1 to 1048576, got 0");
    expect({{"a", kMaxWorldSize + 1}}, kMaxWorldSize + 1, "got 1048577");
    CHECK_NOTHROW(MeshLayout({{"Az09_-.", 1}}, 1));
  }

  TEST_CASE("axes that cannot be chosen are refused with the mesh and what was meant") {
    const MeshLayout mesh({{"replicate", 2}, {"shard", 2}, {"tensor", 2}}, 8);
    const auto expect = [&](const Names& names, const char* text) {
      const std::string whole =
          std::string("device mesh replicate=2 x shard=2 x tensor=2: ") + text;
      CHECK_THROWS_WITH_AS(mesh.groups(names), Contains(whole.c_str()), ConfigError);
      CHECK_THROWS_AS(mesh.group_of(0, names), ConfigError);
      CHECK_THROWS_AS(mesh.submesh(0, names), ConfigError);
      CHECK_THROWS_AS(mesh.flatten(names, "new"), ConfigError);
    };
    expect({}, "at least one of its axes must be named");
    expect({"shrad"}, "there is no axis \"shrad\": did you mean shard?");
    expect({"shard", ""}, "there is no axis \"\": did you mean shard?");
    expect({"shard", "replicate"},
           "axes must be named in the order of the mesh, replicate before shard, got shard, "
           "replicate");
    expect({"shard", "tensor", "replicate"},
           "axes must be named in the order of the mesh, replicate before tensor, got "
           "shard, tensor, replicate");
    expect({"shard", "shard"}, "axis \"shard\" must be named once, got shard, shard");
    expect({"shard", "tensor", "shard"}, "axis \"shard\" must be named once");
    CHECK_THROWS_WITH_AS(mesh.size("tensr"), Contains("did you mean tensor?"), ConfigError);
    CHECK_THROWS_WITH_AS(mesh.group_of(8, {"shard"}), Contains("rank 8 is not among its ranks 0-7"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(mesh.submesh(-1, {"shard"}),
                         Contains("rank -1 is not among its ranks 0-7"), ConfigError);
    CHECK_THROWS_WITH_AS(mesh.flatten({"replicate", "shard"}, "tensor"),
                         Contains("a flattened axis must have a new name, got \"tensor\""),
                         ConfigError);
    CHECK_THROWS_WITH_AS(mesh.flatten({"replicate", "shard"}, "shard"),
                         Contains("a flattened axis must have a new name, got \"shard\""),
                         ConfigError);
    CHECK_THROWS_WITH_AS(mesh.flatten({"shard"}, ""), Contains("must not be empty"), ConfigError);
    CHECK_THROWS_WITH_AS(mesh.flatten({"shard"}, "a+b"), Contains("got \"a+b\""), ConfigError);
  }

  TEST_CASE("ranks that ask for the same mesh agree") {
    const std::string text = MeshLayout({{"a", 4}}, 4).canonical_text();
    CHECK_NOTHROW(check_same_mesh(std::vector<std::string>(4, text)));
    CHECK_NOTHROW(check_same_mesh({}));
  }

  TEST_CASE("each kind of difference between ranks is named, with the ranks on both sides") {
    // Ranks 0, 1 and 3 ask for `most`, rank 2 for `other`.
    const auto expect = [](const std::vector<MeshAxis>& most, const std::vector<MeshAxis>& other,
                           const std::string& text) {
      const auto canonical = [](const std::vector<MeshAxis>& axes) {
        std::int64_t world_size = 1;
        for (const MeshAxis& axis : axes) {
          world_size *= axis.size;
        }
        return MeshLayout(axes, static_cast<int>(world_size)).canonical_text();
      };
      const std::vector<std::string> texts = {canonical(most), canonical(most), canonical(other),
                                              canonical(most)};
      CHECK_THROWS_WITH_AS(check_same_mesh(texts), Contains(text.c_str()), MismatchError);
    };
    expect({{"replicate", 2}, {"shard", 2}}, {{"shard", 2}, {"replicate", 2}},
           "device mesh: all ranks must ask for the same mesh: ranks 0-1, 3 ask for replicate=2 x "
           "shard=2; rank 2 asks for shard=2 x replicate=2 (the axes in another order) [comm/");
    expect({{"replicate", 2}, {"shard", 2}}, {{"replicate", 1}, {"shard", 4}},
           "(\'replicate\' of 1 instead of 2, 'shard' of 4 instead of 2)");
    expect({{"a", 2}, {"shard", 2}}, {{"a", 2}, {"shrad", 2}},
           "(axis 1 is named 'shrad' instead of 'shard')");
    expect({{"a", 2}, {"b", 2}}, {{"c", 2}, {"d", 2}},
           "(axis 0 is named 'c' instead of 'a', axis 1 is named 'd' instead of 'b')");
    expect({{"shard", 4}}, {{"replicate", 2}, {"shard", 2}},
           "(2 axes instead of 1, with 'replicate', 'shard' of 2 instead of 4)");
    expect({{"replicate", 2}, {"shard", 2}}, {{"shard", 4}},
           "(1 axes instead of 2, without 'replicate', 'shard' of 4 instead of 2)");
    expect({{"a", 2}, {"b", 1}, {"c", 2}}, {{"b", 1}, {"d", 2}, {"a", 2}},
           "(without 'c', with 'd', the axes in another order)");
    expect({{"a", 4}}, {{"a", 8}}, "('a' of 8 instead of 4)");
    const std::vector<std::string> texts = {
        MeshLayout({{"ac", 4}, {"b", 2}}, 8).canonical_text(),
        MeshLayout({{"a", 2}, {"b", 2}, {"c", 2}}, 8).flatten({"a", "c"}, "ac").canonical_text()};
    CHECK_THROWS_WITH_AS(
        check_same_mesh(texts),
        Contains("rank 0 asks for ac=4 x b=2; rank 1 asks for ac=4 x b=2 (ranks 0, "
                 "2, 1, 3-4, 6, 5, 7 instead of 0-7)"),
        MismatchError);
  }

  TEST_CASE("several parties are told apart, the largest first, and refusals last") {
    const auto mesh = [](const char* name) { return MeshLayout({{name, 4}}, 4).canonical_text(); };
    CHECK_THROWS_WITH_AS(
        check_same_mesh(std::vector<std::string>{refusal_text("no"), mesh("x"), mesh("y"),
                                                 mesh("y"), refusal_text("no"),
                                                 refusal_text("no")}),
        Contains("mesh: ranks 2-3 ask for y=4; rank 1 asks for x=4 (axis 0 is named 'x' instead of "
                 "'y'); ranks 0, 4-5 refused: no ["),
        MismatchError);
    CHECK_THROWS_WITH_AS(check_same_mesh(std::vector<std::string>(2, refusal_text("no"))),
                         Contains("the same mesh: ranks 0-1 refused: no ["), MismatchError);
    std::vector<std::string> many;
    for (const char* const name : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}) {
      many.push_back(mesh(name));
    }
    CHECK_THROWS_WITH_AS(check_same_mesh(many),
                         Contains("rank 7 asks for h=4 (axis 0 is named 'h' instead of 'a'); and 2 "
                                  "ranks more ["),
                         MismatchError);
  }

  TEST_CASE("a text that is no mesh is refused with its rank") {
    const std::string good = MeshLayout({{"a", 4}}, 4).canonical_text();
    for (const char* const text :
         {"", "mesh 2; axes a=4; ranks 0-3", "mesh 1; axes a=4", "mesh 1; axes ; ranks 0-3",
          "mesh 1; axes a; ranks 0-3", "mesh 1; axes =4; ranks 0-3", "mesh 1; axes a=; ranks 0-3",
          "mesh 1; axes a=0; ranks 0-3", "mesh 1; axes a=4x; ranks 0-3", "mesh 1; refused: ",
          "mesh 1; axes a=99999999999999999999; ranks 0-3", "mesh 1; axes a=4, ; ranks 0-3"}) {
      CAPTURE(text);
      const std::string want = fmt::format("what rank 1 says is no mesh: {:?}", text);
      CHECK_THROWS_WITH_AS(check_same_mesh(std::vector<std::string>{good, text}),
                           Contains(want.c_str()), ProtocolError);
    }
  }
}

}  // namespace fsdptrain::comm
