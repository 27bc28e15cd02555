#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

// Hostile JSON, part by part: memory follows the largest part, not the text.
namespace fsdptrain::checkpoint {

struct JsonLimits {
  std::size_t depth = 64;
  // Of one part.
  std::size_t num_values = std::size_t{1} << 22;
};

// Where a part is in the document: the member of its root, and within that the position in an
// array or the name in an object.
struct JsonPlace {
  std::string member;
  std::size_t index = 0;
  std::string name;
};

// Reads an object and hands over, in the order of the text: the elements of those members that
// are arrays and the members of those that are objects, each as a part, and all else as it is.
// `enter` hears of each array and object of the root before its parts. A name that is there twice
// in one object, more depth or values than the limits, a number that no double holds and what is no
// JSON are a DataError that begins with `source`.
void read_json_records(
    const std::string& source, std::string_view text, const JsonLimits& limits,
    const std::function<void(const std::string& member, bool is_array)>& enter,
    const std::function<void(const JsonPlace& place, nlohmann::json value)>& take);

}  // namespace fsdptrain::checkpoint
