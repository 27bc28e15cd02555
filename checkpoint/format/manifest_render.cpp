#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/manifest_text.h"
#include "checkpoint/safetensors/dtype_names.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kSource = "the manifest to be written";

std::string text_of(const json& value) {
  try {
    return value.dump();
  } catch (const json::type_error&) {
    fail<DataError>("{}: names and objects must be UTF-8", kSource);
  }
}

// `"member":[`, a line for each of `elements` as render() gives it, `],`.
template <class Elements, class Render>
void add_lines(std::string& text, const char* member, const Elements& elements,
               const Render& render) {
  text += fmt::format("\"{}\":[", member);
  const char* separator = "\n";
  for (const auto& element : elements) {
    text += separator;
    text += render(element);
    separator = ",\n";
  }
  text += "],\n";
}

std::string render_file(const SavedFile& file) {
  return fmt::format(R"({{"name":{},"nbytes":{},"digest":"{}"}})", text_of(file.name),
                     file.facts.nbytes, to_string(file.facts.digest));
}

std::string render_group(const SavedGroup& group) {
  std::string planes;
  for (const SavedPlane& plane : group.planes) {
    planes += fmt::format("{}[{},\"{}\"]", planes.empty() ? "" : ",", text_of(plane.name),
                          safetensors_name_of(plane.dtype));
  }
  return fmt::format(R"({{"name":{},"part":{},"planes":[{}]}})", text_of(group.name), group.part,
                     planes);
}

std::string render_piece(const SavedPiece& piece) {
  return fmt::format(R"({{"file":{},"offset":[{}],"size":[{}],"begin":{},"end":{}}})", piece.file,
                     fmt::join(piece.box.offset, ","), fmt::join(piece.box.size, ","),
                     piece.in_box.begin, piece.in_box.end);
}

std::string render_tensor(const SavedTensor& tensor) {
  std::string text =
      fmt::format(R"({{"name":{},"shape":[{}],"group":{})", text_of(tensor.name),
                  fmt::join(tensor.shape.begin(), tensor.shape.end(), ","), tensor.group);
  if (tensor.pieces.empty()) {
    text += fmt::format(R"(,"offset":{})", tensor.offset);
  } else {
    std::string pieces;
    for (const SavedPiece& piece : tensor.pieces) {
      pieces += (pieces.empty() ? "" : ",") + render_piece(piece);
    }
    text += fmt::format(R"(,"pieces":[{}])", pieces);
  }
  if (tensor.step) {
    text += fmt::format(R"(,"step":{})", *tensor.step);
  }
  return text + "}";
}

std::string render_object(const SavedObject& object) {
  const char* kind = object.kind == SavedObject::Kind::Replicated ? "replicated" : "per_rank";
  return fmt::format(R"({{"kind":"{}","values":{}}})", kind, text_of(json(object.values)));
}

}  // namespace

std::string render_manifest(const Manifest& manifest) {
  check_manifest(kSource, manifest);
  std::string text(kManifestBegin);
  text += fmt::format("{},\n\"writer\":{},\n\"created\":{},\n\"step\":{},\n\"attempt\":{},\n",
                      kFormatVersion, text_of(manifest.writer), text_of(manifest.created),
                      manifest.step, text_of(manifest.attempt));
  text += fmt::format("\"num_ranks\":{},\n", manifest.num_ranks);
  add_lines(text, "files", manifest.files, render_file);
  add_lines(text, "groups", manifest.layout.groups, render_group);
  add_lines(text, "tensors", manifest.layout.tensors, render_tensor);
  text += "\"objects\":{";
  const char* separator = "\n";
  for (const auto& [name, object] : manifest.objects) {
    text += fmt::format("{}{}:{}", separator, text_of(name), render_object(object));
    separator = ",\n";
  }
  text += "},\n";
  const std::string digest = to_string(digest_of(text));
  return text.append(kManifestDigest).append(digest).append(kManifestEnd);
}

}  // namespace fsdptrain::checkpoint
