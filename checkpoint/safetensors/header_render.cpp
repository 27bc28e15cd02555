#include <cstddef>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors/dtype_names.h"
#include "checkpoint/safetensors/header.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {

using nlohmann::json;

std::string render_safetensors_header(const std::string& file, const SafetensorsHeader& header) {
  const auto quoted = [&file](const std::string& text) {
    try {
      return json(text).dump();
    } catch (const json::type_error&) {
      fail<DataError>("{}: names and metadata must be UTF-8, got {}", file, shown(text));
    }
  };
  std::string text = "{";
  const auto add = [&text](const std::string& member) {
    text += text.size() == 1 ? "" : ",";
    text += member;
  };
  if (!header.metadata.empty()) {
    std::string members;
    for (const auto& [key, value] : header.metadata) {
      members += fmt::format("{}{}:{}", members.empty() ? "" : ",", quoted(key), quoted(value));
    }
    add(fmt::format("\"{}\":{{{}}}", kMetadataKey, members));
  }
  for (const TensorEntry& entry : header.entries) {
    add(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    quoted(entry.name), safetensors_name_of(entry.dtype),
                    fmt::join(entry.shape.begin(), entry.shape.end(), ","), entry.begin,
                    entry.end));
  }
  text += '}';
  constexpr std::size_t kAlign = 8;
  text.append((kAlign - text.size() % kAlign) % kAlign, ' ');
  check<DataError>(text.size() <= kMaxHeaderBytes,
                   "{}: a header has at most {} bytes, {} tensors need {}", file, kMaxHeaderBytes,
                   header.entries.size(), text.size());
  return text;
}

}  // namespace fsdptrain::checkpoint
