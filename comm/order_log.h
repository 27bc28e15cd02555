#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/fnv.h"

namespace fsdptrain::comm {

// Collectives so far, and the hash of what each of them was, in their order.
struct OrderState {
  std::uint64_t number = 0;
  std::uint64_t hash = 0;

  friend auto operator<=>(const OrderState&, const OrderState&) = default;
};

// The order in which a rank issued its collectives, in 40 bytes. At the same point of the program
// ranks that have made groups of the same names and sizes must have equal ones, and all ranks, in
// whatever groups they are, the same of the group of all.
struct OrderDigest {
  // Of the names and sizes of the groups so far.
  std::uint64_t groups = 0;
  // Of every group.
  OrderState all;
  // Of the group of all ranks, which is the first one that the log hears of.
  OrderState world;

  friend bool operator==(const OrderDigest&, const OrderDigest&) = default;
};

// Keeps that digest where the backend does not compare operations itself. Sends and receives are
// not in it: they differ from rank to rank. One thread.
class OrderLog {
 public:
  // What is told of a difference, at most.
  static constexpr std::size_t kMaxRecent = 64;

  // A collective of any group, or Op::CreateGroup of a new one.
  void add(const Call& call);

  const OrderDigest& digest() const { return digest_; }
  // The last collectives, oldest first, one line each: number, digest behind it, the same of the
  // group of all ranks (its number is -1 where this one is of another group), text.
  std::string recent() const;

 private:
  struct Entry {
    OrderState all;
    // Not of a collective of another group.
    std::optional<OrderState> world;
    Frame frame;
  };

  OrderDigest digest_;
  Fnv hash_;
  Fnv world_hash_;
  Fnv groups_;
  // Of the group of all ranks, once it is there.
  std::optional<std::uint64_t> world_group_;
  std::deque<Entry> recent_;
};

// What differs between ranks, as "rank 2 has not issued what rank 0 has: operation 17 is ... on
// rank 2, ... on rank 0"; empty if nothing does. Rank i gave digests[i] and recent[i], which is not
// looked at where no digest differs.
std::string order_difference(const std::vector<OrderDigest>& digests,
                             const std::vector<std::string>& recent);
// Whether any does.
bool orders_differ(const std::vector<OrderDigest>& digests);

}  // namespace fsdptrain::comm
