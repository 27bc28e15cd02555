#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/format/manifest.h"

// What both sides of a manifest's text agree on.
namespace fsdptrain::checkpoint {

inline constexpr std::string_view kFormatName = "fsdptrain-checkpoint";
// Of every version, so that a reader of an older one can say that it is newer.
inline constexpr std::string_view kManifestBegin = R"({"format":"fsdptrain-checkpoint","version":)";
// The text ends with it, 32 digits and kManifestEnd; they are of all before it.
inline constexpr std::string_view kManifestDigest = "\"digest\":\"";
inline constexpr std::string_view kManifestEnd = "\"}\n";

inline constexpr std::size_t kMaxWriterBytes = 256;
// Of an object's value, from its own beginning.
inline constexpr std::size_t kMaxObjectDepth = 60;

// All that is not of the layout: step, attempt, files, objects, and files against the layout.
void check_manifest(const std::string& source, const Manifest& manifest);

}  // namespace fsdptrain::checkpoint
