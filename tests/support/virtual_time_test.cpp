#include "tests/support/virtual_time.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;

VirtualOp compute(std::string name, std::chrono::nanoseconds duration,
                  std::vector<std::size_t> dependencies = {}) {
  return {.name = std::move(name),
          .places = {{.device = 0, .stream = 0, .resource = Resource::Compute}},
          .duration = duration,
          .dependencies = std::move(dependencies)};
}

VirtualOp collective(std::string name, int stream, std::chrono::nanoseconds duration,
                     std::vector<std::size_t> dependencies = {}) {
  return {.name = std::move(name),
          .places = {{.device = 0, .stream = stream, .resource = Resource::Link, .lane = stream}},
          .duration = duration,
          .dependencies = std::move(dependencies)};
}

std::chrono::nanoseconds makespan(const std::vector<VirtualOp>& ops, LinkModel links) {
  return simulate(ops, links).makespan;
}

}  // namespace

TEST_SUITE("support/virtual_time") {
  TEST_CASE("without overlap the times of gathers and layers add up") {
    // Each gather waits for the layer before it: 4 + 3 + 4 + 3 + 4 + 3.
    const std::vector<VirtualOp> ops = {
        collective("gather", 1, 4ns),      compute("layer", 3ns, {0}),
        collective("gather", 1, 4ns, {1}), compute("layer", 3ns, {2}),
        collective("gather", 1, 4ns, {3}), compute("layer", 3ns, {4})};
    CHECK(makespan(ops, LinkModel::Separate) == 21ns);
    CHECK(timeline(ops, simulate(ops, LinkModel::Separate), 21) ==
          "device 0 stream 0 |....lll....lll....lll|\n"
          "device 0 stream 1 |gggg...gggg...gggg...|\n");
  }

  TEST_CASE("with perfect overlap only the first gather and the last reduction are exposed") {
    // 4 exposed, three layers of 5, 2 exposed; all else is under compute.
    const std::vector<VirtualOp> ops = {
        collective("gather", 1, 4ns),      compute("layer", 5ns, {0}),
        collective("gather", 1, 4ns),      collective("reduce", 2, 2ns, {1}),
        compute("layer", 5ns, {2}),        collective("gather", 1, 4ns),
        collective("reduce", 2, 2ns, {4}), compute("layer", 5ns, {5}),
        collective("reduce", 2, 2ns, {7})};
    CHECK(makespan(ops, LinkModel::Separate) == 21ns);
    CHECK(timeline(ops, simulate(ops, LinkModel::Separate), 21) ==
          "device 0 stream 0 |....lllllllllllllll..|\n"
          "device 0 stream 1 |gggggggggggg.........|\n"
          "device 0 stream 2 |.........rr...rr...rr|\n");
  }

  TEST_CASE("on a shared link a gather and a reduction take turns") {
    // The layer ends at 2 + 3; the reduction and the second gather, both ready at 5, share the
    // link: 5 + 4 + 6. Separately the longer one hides the shorter: 5 + 6.
    const std::vector<VirtualOp> ops = {collective("gather", 1, 2ns), compute("layer", 3ns, {0}),
                                        collective("reduce", 2, 4ns, {1}),
                                        collective("gather", 1, 6ns, {1})};
    CHECK(makespan(ops, LinkModel::Shared) == 15ns);
    CHECK(makespan(ops, LinkModel::Separate) == 11ns);
    CHECK(timeline(ops, simulate(ops, LinkModel::Shared), 15) ==
          "device 0 stream 0 |..lll..........|\n"
          "device 0 stream 1 |gg.......gggggg|\n"
          "device 0 stream 2 |.....rrrr......|\n");
  }

  TEST_CASE("kernels of two streams of a device do not run at the same time") {
    std::vector<VirtualOp> ops = {compute("a", 3ns), compute("b", 4ns)};
    ops[1].places[0].stream = 1;
    CHECK(makespan(ops, LinkModel::Separate) == 7ns);
    ops[1].places[0].device = 1;
    CHECK(makespan(ops, LinkModel::Separate) == 4ns);
  }

  TEST_CASE("a collective begins when the last of its devices comes") {
    std::vector<VirtualOp> ops = {compute("a", 3ns), collective("gather", 0, 2ns)};
    ops[1].places.push_back({.device = 1, .stream = 0, .resource = Resource::Link});
    const Schedule schedule = simulate(ops, LinkModel::Shared);
    CHECK(schedule.spans[1].begin == 3ns);
    CHECK(schedule.makespan == 5ns);
  }

  TEST_CASE("operations that wait for each other are an error") {
    std::vector<VirtualOp> ops = {compute("a", 1ns, {1}), compute("b", 1ns)};
    CHECK_THROWS_WITH_AS(simulate(ops, LinkModel::Shared), doctest::Contains("wait for each other"),
                         Error);
  }
}

}  // namespace fsdptrain::testing
