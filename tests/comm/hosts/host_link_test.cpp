#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/hosts/connect.h"
#include "comm/process_group.h"
#include "comm/world.h"
#include "tests/support/map_rendezvous.h"
#include "tests/support/rank_backends.h"

// Hosts are segments of this process, joined by gloo over the loopback interface.
namespace fsdptrain::comm {
namespace {

std::shared_ptr<const Segment> segment_for(int num_ranks) {
  const int descriptor = Segment::create({num_ranks, std::uint64_t{64} << 20});
  const auto segment = std::make_shared<const Segment>(descriptor);
  ::close(descriptor);
  return segment;
}

ThreadRanks ranks_on(const std::vector<int>& hosts) {
  std::map<int, int> num_ranks;
  for (const int host : hosts) {
    ++num_ranks[host];
  }
  std::map<int, std::shared_ptr<const Segment>> segments;
  for (const auto& [host, count] : num_ranks) {
    segments[host] = segment_for(count);
  }
  return {.num_ranks = static_cast<int>(hosts.size()),
          .connect = [hosts, segments, network = testing::loopback()](int rank) {
            const int host = hosts[static_cast<std::size_t>(rank)];
            return connect_hosts(segments.at(host), network, hosts, rank, false);
          }};
}

using Bytes = std::vector<std::byte>;

void append(Bytes& to, const Tensor& tensor) {
  const auto bytes = tensor.bytes();
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// What a rank holds after operations of all patterns, in shared memory and elsewhere.
Bytes results_of(World& world, DType dtype, bool allocated) {
  ProcessGroup& group = world.group();
  const std::int64_t part = 20011;
  const auto make = [&](std::int64_t numel) {
    return allocated ? group.allocate({numel}, dtype) : Tensor::empty({numel}, dtype);
  };
  Bytes results;
  const Tensor input = make(part * group.size());
  for (std::int64_t i = 0; i < input.numel(); ++i) {
    input.detach().set_item(i, static_cast<double>((i * 7919 + group.rank() * 104729) % 1013) / 7);
  }
  const Tensor output = make(part);
  group.issue(reduce_scatter(output, input, {ReduceOp::Avg})).wait();
  append(results, output);
  const Tensor gathered = make(part * group.size());
  group.issue(all_gather(gathered, output)).wait();
  append(results, gathered);
  group.issue(all_to_all(gathered, input)).wait();
  append(results, gathered);
  group.issue(all_reduce(input)).wait();
  append(results, input);
  group.issue(broadcast(output, group.size() - 1)).wait();
  append(results, output);
  const Tensor received = make(part);
  const int size = group.size();
  group
      .batch({send(output, (group.rank() + 1) % size),
              recv(received, (group.rank() + size - 1) % size)})
      .wait();
  append(results, received);
  return results;
}

std::vector<Bytes> results_of(const ThreadRanks& ranks, DType dtype, bool allocated) {
  std::vector<Bytes> results(static_cast<std::size_t>(ranks.num_ranks));
  run_ranks(ranks, [&](World& world) {
    results[static_cast<std::size_t>(world.rank())] = results_of(world, dtype, allocated);
  });
  return results;
}

}  // namespace

TEST_SUITE("comm/host_link") {
  TEST_CASE("ranks of several hosts get the bits that ranks of one get") {
    const std::vector<std::vector<int>> worlds{
        {0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}, {5, 3, 5, 3, 3}};
    for (const std::vector<int>& hosts : worlds) {
      CAPTURE(hosts.size());
      for (const DType dtype : {DType::Float32, DType::BFloat16}) {
        CAPTURE(name_of(dtype));
        const ThreadRanks threads{.num_ranks = static_cast<int>(hosts.size())};
        const std::vector<Bytes> expected = results_of(threads, dtype, false);
        for (const bool allocated : {false, true}) {
          CAPTURE(allocated);
          CHECK(results_of(ranks_on(hosts), dtype, allocated) == expected);
        }
      }
    }
  }

  TEST_CASE("a failure is told by the rank in the world, on its host and on others") {
    const auto errors = try_ranks(ranks_on({0, 0, 1, 1}), [](World& world) {
      if (world.rank() == 3) {
        throw std::runtime_error("out of luck");
      }
      world.group().issue(barrier()).wait();
    });
    for (const std::size_t rank : {0, 1, 2}) {
      CHECK_THROWS_WITH_AS(std::rethrow_exception(errors[rank]),
                           doctest::Contains("rank 3 failed: out of luck"), PeerError);
    }
  }

  TEST_CASE("a rank that leaves is named on its host and on others") {
    const auto errors = try_ranks(ranks_on({0, 0, 1, 1}), [](World& world) {
      if (world.rank() != 3) {
        world.group().issue(barrier()).wait();
      }
    });
    for (const std::size_t rank : {0, 1, 2}) {
      CHECK_THROWS_WITH_AS(std::rethrow_exception(errors[rank]),
                           doctest::Contains("rank 3 left before the end of barrier"), PeerError);
    }
  }

  TEST_CASE("what a rank of another host does wakes one that waits") {
    const ThreadRanks ranks = ranks_on({0, 1});
    std::jthread other([&] {
      const Links links = ranks.connect(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      links.training->post({0, 0}, Frame{});
    });
    const Links links = ranks.connect(0);
    Link& link = *links.training;
    const std::uint32_t changes = link.changes();
    CHECK_FALSE(link.frame({1, 0}));
    while (!link.frame({1, 0})) {
      link.rest(changes, std::chrono::seconds(10));
    }
    CHECK(link.changes() != changes);
  }

  TEST_CASE("hosts that do not fit the memory of this one are refused") {
    const Network network = testing::loopback();
    CHECK_THROWS_WITH_AS(connect_hosts(segment_for(2), network, {0}, 0, false),
                         doctest::Contains("host 0 has 1 ranks, but memory for 2"), ConfigError);
    CHECK_THROWS_WITH_AS(connect_hosts(segment_for(1), network, {0}, 1, false),
                         doctest::Contains("rank 1 has no host"), ConfigError);
  }
}

}  // namespace fsdptrain::comm
