#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mesh/layout.h"

// What ranks tell each other about the mesh that they ask for: one line,
// "mesh 1; axes replicate=2, shard=4; ranks 0-7" or "mesh 1; refused: REASON".
namespace fsdptrain::comm {

struct MeshText {
  std::vector<MeshAxis> axes;
  std::string ranks;
  // Why the rank has none, else empty.
  std::string refusal = {};
};

// "replicate=2 x shard=4"
std::string axes_text(std::span<const MeshAxis> axes);

std::string to_text(const MeshText& mesh);
// XXH3.
std::uint64_t hash_of(std::string_view text);
// ProtocolError, with the rank, for what no rank of this version says.
MeshText parse_mesh_text(int rank, std::string_view text);

// What a rank says that refused its mesh, in place of the canonical text.
std::string refusal_text(std::string_view why);

// That all ranks ask for the same mesh; `texts` holds the canonical text, or the refusal, of each.
// MismatchError that says who differs from whom in what, equal on all ranks; ProtocolError for
// a text that is neither.
void check_same_mesh(std::span<const std::string> texts);

}  // namespace fsdptrain::comm
