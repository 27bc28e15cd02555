#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace fsdptrain::comm {

// What the groups of parameters in tags are called: a tag carries numbers, people want the layer.
class TagNames {
 public:
  // In the place of an earlier name.
  void set(std::uint32_t root, std::uint32_t group, std::string name) {
    names_.insert_or_assign({root, group}, std::move(name));
  }
  // Where this has none yet.
  void add(const TagNames& others) { names_.insert(others.names_.begin(), others.names_.end()); }

  // Empty for a group that has no name, and for the tag of operations that have none.
  template <class AnyTag>
  std::string_view find(const AnyTag& tag) const {
    const auto found = names_.find({tag.root, tag.group});
    return found == names_.end() || tag == AnyTag{} ? std::string_view() : found->second;
  }
  bool empty() const { return names_.empty(); }

 private:
  // By root and group.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> names_;
};

}  // namespace fsdptrain::comm
