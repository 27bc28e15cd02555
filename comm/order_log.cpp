#include "comm/order_log.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "comm/ranks.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

void add_to(Fnv& hash, const Call& call) {
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

// Counts it; its own number, and the hash behind it.
OrderState add_call(const Call& call, Fnv& hash, OrderState& state) {
  add_to(hash, call);
  state.hash = hash.value();
  return {state.number++, state.hash};
}

// What ranks are compared in: their order in all groups, with ranks that have the same groups, or
// that in the group of all ranks, with all.
enum class Scope { Groups, World };

using Key = std::pair<std::uint64_t, OrderState>;

Key key_of(const OrderDigest& digest, Scope scope) {
  return scope == Scope::World ? Key{0, digest.world} : Key{digest.groups, digest.all};
}

std::int64_t number_of(const OrderDigest& digest, Scope scope) {
  return static_cast<std::int64_t>(key_of(digest, scope).second.number);
}

struct Difference {
  std::size_t odd = 0;
  std::size_t reference = 0;
  Scope scope = Scope::Groups;
};

// Ranks that agree.
struct Party {
  std::size_t first = 0;
  std::size_t size = 0;
};

// The first rank that differs, and from which one: the first of those that most agree with.
std::optional<Difference> first_difference(const std::vector<OrderDigest>& digests, Scope scope) {
  std::map<Key, Party> parties;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    ++parties.try_emplace(key_of(digests[i], scope), Party{i}).first->second.size;
  }
  std::map<std::uint64_t, Party> largest;
  for (const auto& [key, party] : parties) {
    Party& best = largest[key.first];
    if (party.size > best.size || (party.size == best.size && party.first < best.first)) {
      best = party;
    }
  }
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const Key key = key_of(digests[i], scope);
    const std::size_t reference = largest.at(key.first).first;
    if (key != key_of(digests[reference], scope)) {
      return Difference{i, reference, scope};
    }
  }
  return std::nullopt;
}

std::optional<Difference> first_difference(const std::vector<OrderDigest>& digests) {
  if (std::ranges::adjacent_find(digests, std::ranges::not_equal_to()) == digests.end()) {
    return std::nullopt;
  }
  const auto in_groups = first_difference(digests, Scope::Groups);
  return in_groups ? in_groups : first_difference(digests, Scope::World);
}

struct Line {
  std::string hash;
  std::string text;
};
using Lines = std::map<std::int64_t, Line>;

// By number, from what OrderLog::recent() of another rank says.
Lines lines_of(const std::string& recent, Scope scope) {
  Lines lines;
  std::istringstream in(recent);
  std::int64_t number = 0;
  std::int64_t world_number = 0;
  Line line;
  Line world;
  while (in >> number >> line.hash >> world_number >> world.hash &&
         std::getline(in >> std::ws, line.text)) {
    world.text = line.text;
    if (scope == Scope::Groups) {
      lines[number] = line;
    } else if (world_number >= 0) {
      lines[world_number] = world;
    }
  }
  return lines;
}

std::string text_of(const Lines& lines, std::int64_t number) {
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
  if (!world_group_) {
    world_group_ = call.frame.group_hash;
  }
  Entry entry{.all = add_call(call, hash_, digest_.all), .world = {}, .frame = call.frame};
  if (call.frame.group_hash == *world_group_) {
    entry.world = add_call(call, world_hash_, digest_.world);
  }
  recent_.push_back(entry);
  if (recent_.size() > kMaxRecent) {
    recent_.pop_front();
  }
}

std::string OrderLog::recent() const {
  std::string text;
  for (const Entry& entry : recent_) {
    const OrderState world = entry.world.value_or(OrderState{});
    text += fmt::format("{} {:016x} {} {:016x} {}\n", entry.all.number, entry.all.hash,
                        entry.world ? static_cast<std::int64_t>(world.number) : -1, world.hash,
                        to_string(entry.frame));
  }
  return text;
}

bool orders_differ(const std::vector<OrderDigest>& digests) {
  return first_difference(digests).has_value();
}

std::string order_difference(const std::vector<OrderDigest>& digests,
                             const std::vector<std::string>& recent) {
  const auto found = first_difference(digests);
  if (!found) {
    return "";
  }
  const auto [odd, reference, scope] = *found;
  const std::string names = fmt::format("rank {} has not issued what rank {} has", odd, reference);
  const Lines odd_lines = lines_of(recent.at(odd), scope);
  const Lines reference_lines = lines_of(recent.at(reference), scope);
  const auto [least, most] =
      std::minmax({number_of(digests[odd], scope), number_of(digests[reference], scope)});
  for (std::int64_t number = 0; number < most; ++number) {
    const auto mine = odd_lines.find(number);
    const auto theirs = reference_lines.find(number);
    const bool has_mine = mine != odd_lines.end();
    const bool has_theirs = theirs != reference_lines.end();
    const bool is_missing = has_mine != has_theirs && number >= least;
    if (is_missing || (has_mine && has_theirs && mine->second.hash != theirs->second.hash)) {
      return fmt::format("{}: operation {}{} is {} on rank {}, {} on rank {}", names, number,
                         scope == Scope::World ? " of the group of all ranks" : "",
                         text_of(odd_lines, number), odd, text_of(reference_lines, number),
                         reference);
    }
  }
  return fmt::format("{}, but not in the last {} operations", names, OrderLog::kMaxRecent);
}

}  // namespace fsdptrain::comm
