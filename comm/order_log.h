#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/fnv.h"

namespace fsdptrain::comm {

// The order in which a rank issued its collectives, in 24 bytes. Ranks that have made groups of the
// same names and sizes must have equal ones at the same point of the program.
struct OrderDigest {
  // Of the names and sizes of the groups so far.
  std::uint64_t groups = 0;
  // Collectives so far, and the hash of what each of them was, in their order.
  std::uint64_t number = 0;
  std::uint64_t hash = 0;

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
  // The last collectives, oldest first, one line each: number, digest behind it, text.
  std::string recent() const;

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    Frame frame;
  };

  OrderDigest digest_;
  Fnv hash_;
  Fnv groups_;
  std::deque<Entry> recent_;
};

// What differs between ranks that have the same groups, as "rank 2 is not in the order of rank 0:
// operation 17 is ... on rank 2, ... on rank 0"; empty if nothing does. Rank i gave digests[i] and
// recent[i], which is not looked at where no digest differs.
std::string order_difference(const std::vector<OrderDigest>& digests,
                             const std::vector<std::string>& recent);
// Whether any does.
bool orders_differ(const std::vector<OrderDigest>& digests);

}  // namespace fsdptrain::comm
