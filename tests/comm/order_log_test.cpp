#include "comm/order_log.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/operation.h"
#include "comm/run_ranks.h"

namespace fsdptrain::comm {
namespace {

constexpr int kNumRanks = 3;
constexpr std::uint64_t kWorld = 1;
constexpr std::uint64_t kOther = 2;

Call call_of(Op op, std::uint64_t group, std::uint32_t tag = 0) {
  const bool is_world = group == kWorld;
  Call call;
  call.members = std::make_shared<const Members>(
      Members{is_world ? std::vector<int>{0, 1, 2} : std::vector<int>{2}, 0});
  call.operation.op = op;
  call.frame.op = op;
  call.frame.group_hash = group;
  call.frame.group_name = GroupName(is_world ? "world" : "other");
  call.frame.tag.group = tag;
  return call;
}

// Ranks that have made the group of all.
std::vector<OrderLog> new_logs() {
  std::vector<OrderLog> logs(kNumRanks);
  for (OrderLog& log : logs) {
    log.add(call_of(Op::CreateGroup, kWorld));
  }
  return logs;
}

std::string difference(const std::vector<OrderLog>& logs) {
  std::vector<OrderDigest> digests;
  std::vector<std::string> recent;
  for (const OrderLog& log : logs) {
    digests.push_back(log.digest());
    recent.push_back(log.recent());
  }
  const std::string text = order_difference(digests, recent);
  CHECK(orders_differ(digests) == !text.empty());
  return text;
}

void add_to_all(std::vector<OrderLog>& logs, const Call& call) {
  for (OrderLog& log : logs) {
    log.add(call);
  }
}

}  // namespace

TEST_SUITE("comm/order_log") {
  TEST_CASE("ranks that issued the same differ in nothing, and sends count for none") {
    auto logs = new_logs();
    add_to_all(logs, call_of(Op::AllReduce, kWorld, 7));
    logs[1].add(call_of(Op::Send, kWorld));
    CHECK(difference(logs) == "");
  }

  TEST_CASE("the odd rank is named with its operation, and the first of those that agree") {
    for (std::size_t odd = 0; odd < kNumRanks; ++odd) {
      auto logs = new_logs();
      for (std::size_t rank = 0; rank < kNumRanks; ++rank) {
        logs[rank].add(call_of(Op::AllReduce, kWorld, rank == odd ? 8 : 7));
      }
      add_to_all(logs, call_of(Op::Barrier, kWorld));
      const std::string text = difference(logs);
      CAPTURE(text);
      CHECK(text.starts_with("rank " + std::to_string(odd) + " has not issued what rank " +
                             (odd == 0 ? "1" : "0") + " has: operation 1 is all_reduce"));
      CHECK(text.find("group 8") < text.find("group 7"));
    }
  }

  TEST_CASE("where no two agree the others are compared with the first rank") {
    auto logs = new_logs();
    for (std::size_t rank = 0; rank < kNumRanks; ++rank) {
      logs[rank].add(call_of(Op::AllReduce, kWorld, static_cast<std::uint32_t>(rank)));
    }
    CHECK(difference(logs).starts_with("rank 1 has not issued what rank 0 has"));
  }

  TEST_CASE("a rank that issued more than the others is named, and what the others lack") {
    auto logs = new_logs();
    logs[1].add(call_of(Op::AllReduce, kWorld));
    const std::string text = difference(logs);
    CHECK(text.starts_with("rank 1 has not issued what rank 0 has: operation 1 is all_reduce"));
    CHECK(text.ends_with("on rank 1, not there on rank 0"));
  }

  TEST_CASE("a group of its own does not hide what a rank did in the group of all") {
    auto logs = new_logs();
    logs[2].add(call_of(Op::CreateGroup, kOther));
    logs[2].add(call_of(Op::AllReduce, kOther));
    add_to_all(logs, call_of(Op::AllReduce, kWorld, 5));
    // What it did in its own group is its own affair.
    CHECK(difference(logs) == "");
    logs[0].add(call_of(Op::AllReduce, kWorld, 7));
    logs[1].add(call_of(Op::AllReduce, kWorld, 7));
    logs[2].add(call_of(Op::AllReduce, kWorld, 8));
    const std::string text = difference(logs);
    CAPTURE(text);
    CHECK(
        text.starts_with("rank 2 has not issued what rank 0 has: operation 2 of the group of all "
                         "ranks is all_reduce"));
    CHECK(text.find("group 8") < text.find("group 7"));
  }

  TEST_CASE("what is older than the last operations differs without its text") {
    auto logs = new_logs();
    logs[0].add(call_of(Op::AllReduce, kWorld, 8));
    logs[1].add(call_of(Op::AllReduce, kWorld, 7));
    logs[2].add(call_of(Op::AllReduce, kWorld, 7));
    for (std::size_t i = 0; i < OrderLog::kMaxRecent; ++i) {
      add_to_all(logs, call_of(Op::Barrier, kWorld));
    }
    // The digest behind the oldest one that is left says that it was before.
    CHECK(difference(logs).starts_with("rank 0 has not issued what rank 1 has"));
  }

  TEST_CASE("on the CPU there is nothing to check, and one rank need not wait for the others") {
    run_ranks({.num_ranks = 2, .world = {.timeout = std::chrono::seconds(20)}}, [](World& world) {
      if (world.rank() == 0) {
        world.check_order();
      }
      world.control().issue(barrier()).wait();
    });
  }
}

}  // namespace fsdptrain::comm
