#include "comm/mesh/text.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>
#include <xxhash.h>

#include "comm/error.h"
#include "comm/ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

constexpr std::string_view kAxes = "mesh 1; axes ";
constexpr std::string_view kRefused = "mesh 1; refused: ";
constexpr std::string_view kRanks = "; ranks ";
// Of a text in an error.
constexpr std::size_t kMaxShown = 200;
constexpr std::size_t kMaxPartiesShown = 8;

std::string axes_text(std::span<const MeshAxis> axes, std::string_view separator) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : separator, axis.name, axis.size);
  }
  return text;
}

bool parse_axis(std::string_view text, MeshAxis& axis) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return false;
  }
  axis.name = text.substr(0, equals);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + equals + 1, end, axis.size);
  return error == std::errc() && rest == end && axis.size >= 1;
}

bool parse_axes(std::string_view text, std::vector<MeshAxis>& axes) {
  constexpr std::string_view kSeparator = ", ";
  while (true) {
    const std::size_t end = text.find(kSeparator);
    if (!parse_axis(text.substr(0, end), axes.emplace_back())) {
      return false;
    }
    if (end == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(end + kSeparator.size());
  }
}

bool parse(std::string_view text, MeshText& mesh) {
  if (text.starts_with(kRefused)) {
    mesh.refusal = text.substr(kRefused.size());
    return !mesh.refusal.empty();
  }
  const std::size_t ranks = text.find(kRanks);
  if (!text.starts_with(kAxes) || ranks == std::string_view::npos) {
    return false;
  }
  mesh.ranks = text.substr(ranks + kRanks.size());
  return parse_axes(text.substr(kAxes.size(), ranks - kAxes.size()), mesh.axes);
}

const MeshAxis* find_axis(const MeshText& mesh, const std::string& name) {
  const auto found = std::ranges::find(mesh.axes, name, &MeshAxis::name);
  return found == mesh.axes.end() ? nullptr : &*found;
}

class List {
 public:
  void add(std::string item) { text_ += (text_.empty() ? "" : ", ") + std::move(item); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Names that only one of them has, one instead of the other where they stand in the same place.
void list_names(const MeshText& want, const MeshText& got, List& list) {
  std::vector<std::string> paired;
  for (std::size_t i = 0; i < std::min(want.axes.size(), got.axes.size()); ++i) {
    const std::string& from = want.axes[i].name;
    const std::string& to = got.axes[i].name;
    if (want.axes.size() == got.axes.size() && find_axis(got, from) == nullptr &&
        find_axis(want, to) == nullptr) {
      list.add(fmt::format("axis {} is named '{}' instead of '{}'", i, to, from));
      paired.insert(paired.end(), {from, to});
    }
  }
  const auto list_missing = [&](const MeshText& in, const MeshText& from, const char* what) {
    for (const MeshAxis& axis : from.axes) {
      if (find_axis(in, axis.name) == nullptr && !std::ranges::count(paired, axis.name)) {
        list.add(fmt::format("{} '{}'", what, axis.name));
      }
    }
  };
  list_missing(got, want, "without");
  list_missing(want, got, "with");
}

// Axes that both have, in the order of the first.
std::vector<std::string> common_names(const MeshText& first, const MeshText& other) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : first.axes) {
    if (find_axis(other, axis.name) != nullptr) {
      names.push_back(axis.name);
    }
  }
  return names;
}

// In what `got` differs from `want`.
std::string differences(const MeshText& want, const MeshText& got) {
  List list;
  if (want.axes.size() != got.axes.size()) {
    list.add(fmt::format("{} axes instead of {}", got.axes.size(), want.axes.size()));
  }
  list_names(want, got, list);
  const std::vector<std::string> names = common_names(want, got);
  if (names != common_names(got, want)) {
    list.add("the axes in another order");
  }
  for (const std::string& name : names) {
    const std::int64_t want_size = find_axis(want, name)->size;
    const std::int64_t got_size = find_axis(got, name)->size;
    if (want_size != got_size) {
      list.add(fmt::format("'{}' of {} instead of {}", name, got_size, want_size));
    }
  }
  if (want.axes == got.axes) {
    list.add(fmt::format("ranks {} instead of {}", got.ranks, want.ranks));
  }
  return list.text();
}

struct Party {
  std::vector<int> ranks;
  MeshText mesh;
};

// Ranks that say the same, the most first; a refusal is compared with nothing and comes last.
std::vector<Party> parties_of(std::span<const std::string> texts) {
  std::map<std::string_view, Party> by_text;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const int rank = static_cast<int>(i);
    Party& party = by_text[texts[i]];
    if (party.ranks.empty()) {
      party.mesh = parse_mesh_text(rank, texts[i]);
    }
    party.ranks.push_back(rank);
  }
  std::vector<Party> parties;
  for (auto& [text, party] : by_text) {
    parties.push_back(std::move(party));
  }
  std::ranges::sort(parties, [](const Party& a, const Party& b) {
    const auto key = [](const Party& party) {
      return std::tuple(!party.mesh.refusal.empty(), -std::ssize(party.ranks), party.ranks[0]);
    };
    return key(a) < key(b);
  });
  return parties;
}

std::string party_text(const Party& party, const Party& first) {
  const char* const verb = party.ranks.size() == 1 ? "asks" : "ask";
  if (!party.mesh.refusal.empty()) {
    return fmt::format("{} refused: {}", named_ranks(party.ranks), party.mesh.refusal);
  }
  const std::string mesh =
      fmt::format("{} {} for {}", named_ranks(party.ranks), verb, axes_text(party.mesh.axes));
  return &party == &first ? mesh
                          : fmt::format("{} ({})", mesh, differences(first.mesh, party.mesh));
}

}  // namespace

std::string axes_text(std::span<const MeshAxis> axes) {
  return axes_text(axes, " x ");
}

std::string to_text(const MeshText& mesh) {
  return mesh.refusal.empty()
             ? fmt::format("{}{}{}{}", kAxes, axes_text(mesh.axes, ", "), kRanks, mesh.ranks)
             : fmt::format("{}{}", kRefused, mesh.refusal);
}

std::uint64_t hash_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

MeshText parse_mesh_text(int rank, std::string_view text) {
  MeshText mesh;
  check<ProtocolError>(parse(text, mesh), "device mesh: what rank {} says is no mesh: {}", rank,
                       in_quotes(text.substr(0, kMaxShown)));
  return mesh;
}

std::string refusal_text(std::string_view why) {
  return to_text({.axes = {}, .ranks = {}, .refusal = std::string(why)});
}

void check_same_mesh(std::span<const std::string> texts) {
  const std::vector<Party> parties = parties_of(texts);
  if (parties.size() <= 1 && (parties.empty() || parties[0].mesh.refusal.empty())) {
    return;
  }
  std::string text;
  std::size_t num_ranks_left = texts.size();
  for (std::size_t i = 0; i < std::min(parties.size(), kMaxPartiesShown); ++i) {
    text += (i == 0 ? "" : "; ") + party_text(parties[i], parties[0]);
    num_ranks_left -= parties[i].ranks.size();
  }
  if (num_ranks_left > 0) {
    text += fmt::format("; and {} ranks more", num_ranks_left);
  }
  fail<MismatchError>("device mesh: all ranks must ask for the same mesh: {}", text);
}

}  // namespace fsdptrain::comm
