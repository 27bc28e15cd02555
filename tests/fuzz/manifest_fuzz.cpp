#include <stdexcept>
#include <string>
#include <string_view>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/manifest_text.h"
#include "checkpoint/plan/layout_index.h"
#include "checkpoint/plan/read_plan.h"
#include "runtime/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace fsdptrain::checkpoint {
namespace {

// Most mutations break the digest, and nothing behind it would be reached.
std::string with_digest_that_fits(std::string_view text) {
  std::string sealed(text.substr(0, text.rfind(kManifestDigest)));
  const std::string digest = to_string(digest_of(std::as_bytes(std::span(sealed))));
  return sealed.append(kManifestDigest).append(digest).append(kManifestEnd);
}

// What was accepted can be written, gives itself again, and can be planned with.
void use(const Manifest& manifest) {
  if (parse_manifest("again", render_manifest(manifest)) != manifest) {
    throw std::logic_error("a manifest that was read is another one when it is read again");
  }
  const LayoutIndex index(manifest.layout);
  index.specs_of(index.pieces_of(0));
  const ReadPlanner planner(manifest.layout);
  for (std::size_t tensor = 0; tensor < manifest.layout.tensors.size(); ++tensor) {
    const Shape& shape = manifest.layout.tensors[tensor].shape;
    const std::int64_t end = std::min<std::int64_t>(shape.numel(), 1000);
    planner.plan(tensor, wanted_range(shape, {0, end}));
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint

void fsdptrain::fuzz::read_hostile(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    checkpoint::use(checkpoint::parse_manifest("fuzz", text));
  } catch (const Error&) {
    checkpoint::use(checkpoint::parse_manifest("fuzz", checkpoint::with_digest_that_fits(text)));
  }
}
