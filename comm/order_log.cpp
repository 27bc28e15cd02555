#include "comm/order_log.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <sstream>

#include "comm/ranks.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

void add_call(const Call& call, Fnv& hash) {
  const Frame& frame = call.frame;
  hash.add(frame.group_name.view());
  hash.add(static_cast<std::uint64_t>(call.members->size()));
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(frame.op), static_cast<std::uint64_t>(frame.reduce_op),
        std::bit_cast<std::uint64_t>(frame.factor), static_cast<std::uint64_t>(frame.dtype),
        static_cast<std::uint64_t>(frame.dims), static_cast<std::uint64_t>(call.operation.root),
        static_cast<std::uint64_t>(frame.tag.root), static_cast<std::uint64_t>(frame.tag.group),
        static_cast<std::uint64_t>(frame.tag.invocation),
        static_cast<std::uint64_t>(frame.tag.direction), frame.parts_hash, frame.group_sequence}) {
    hash.add(value);
  }
  for (const std::int64_t size : frame.sizes) {
    hash.add(static_cast<std::uint64_t>(size));
  }
}

// The rank that most others agree with, of those with the same groups; the lowest of several.
std::size_t reference_for(const std::vector<OrderDigest>& digests, std::uint64_t groups) {
  std::size_t best = digests.size();
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const std::ptrdiff_t count = std::ranges::count(digests, digests[i]);
    if (digests[i].groups == groups && count > most) {
      best = i;
      most = count;
    }
  }
  return best;
}

struct Ranks {
  std::size_t odd = 0;
  std::size_t reference = 0;
};

// The first rank that differs, and from which one.
std::optional<Ranks> first_difference(const std::vector<OrderDigest>& digests) {
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const std::size_t reference = reference_for(digests, digests[i].groups);
    if (digests[i] != digests[reference]) {
      return Ranks{i, reference};
    }
  }
  return std::nullopt;
}

struct Line {
  std::string hash;
  std::string text;
};

// By number, from what OrderLog::recent() of another rank says.
std::map<std::uint64_t, Line> lines_of(const std::string& recent) {
  std::map<std::uint64_t, Line> lines;
  std::istringstream in(recent);
  std::uint64_t number = 0;
  Line line;
  while (in >> number >> line.hash && std::getline(in >> std::ws, line.text)) {
    lines[number] = line;
  }
  return lines;
}

std::string text_of(const std::map<std::uint64_t, Line>& lines, std::uint64_t number) {
  const auto found = lines.find(number);
  return found == lines.end() ? "not there" : printable(found->second.text);
}

}  // namespace

void OrderLog::add(const Call& call) {
  const Op op = call.operation.op;
  if (op == Op::Send || op == Op::Recv) {
    return;
  }
  if (op == Op::CreateGroup) {
    groups_.add(call.frame.group_name.view());
    groups_.add(static_cast<std::uint64_t>(call.members->size()));
    digest_.groups = groups_.value();
  }
  add_call(call, hash_);
  digest_.hash = hash_.value();
  recent_.push_back({digest_.number++, digest_.hash, call.frame});
  if (recent_.size() > kMaxRecent) {
    recent_.pop_front();
  }
}

std::string OrderLog::recent() const {
  std::string text;
  for (const Entry& entry : recent_) {
    text += fmt::format("{} {:016x} {}\n", entry.number, entry.hash, to_string(entry.frame));
  }
  return text;
}

bool orders_differ(const std::vector<OrderDigest>& digests) {
  return first_difference(digests).has_value();
}

std::string order_difference(const std::vector<OrderDigest>& digests,
                             const std::vector<std::string>& recent) {
  const auto ranks = first_difference(digests);
  if (!ranks) {
    return "";
  }
  const auto [odd, reference] = *ranks;
  const std::string names = fmt::format("rank {} has not issued what rank {} has", odd, reference);
  const auto odd_lines = lines_of(recent.at(odd));
  const auto reference_lines = lines_of(recent.at(reference));
  const std::uint64_t end = std::max(digests[odd].number, digests[reference].number);
  for (std::uint64_t number = 0; number < end; ++number) {
    const auto mine = odd_lines.find(number);
    const auto theirs = reference_lines.find(number);
    const bool has_mine = mine != odd_lines.end();
    const bool has_theirs = theirs != reference_lines.end();
    const bool is_missing = has_mine != has_theirs &&
                            number >= std::min(digests[odd].number, digests[reference].number);
    if (is_missing || (has_mine && has_theirs && mine->second.hash != theirs->second.hash)) {
      return fmt::format("{}: operation {} is {} on rank {}, {} on rank {}", names, number,
                         text_of(odd_lines, number), odd, text_of(reference_lines, number),
                         reference);
    }
  }
  return fmt::format("{}, but not in the last {} operations", names, OrderLog::kMaxRecent);
}

}  // namespace fsdptrain::comm
