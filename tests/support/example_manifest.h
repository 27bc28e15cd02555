#pragma once

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/manifest_text.h"

namespace fsdptrain::testing {

// Two files, a group of two planes whose second tensor lies in both, and a tensor in four boxes.
inline checkpoint::Manifest example_manifest() {
  using namespace checkpoint;  // NOLINT(google-build-using-namespace): of one function.
  Manifest manifest;
  manifest.step = 1000;
  manifest.attempt = "00112233445566778899aabbccddeeff";
  manifest.num_ranks = 2;
  manifest.created = "2026-11-30T21:15:00Z";
  manifest.writer = "fsdptrain 0.1.0";
  manifest.files = {{.name = "rank-00000.safetensors",
                     .facts = {.nbytes = 4096, .digest = {.high = 1, .low = 2}}},
                    {.name = "rank-00001.safetensors",
                     .facts = {.nbytes = 4000, .digest = {.high = 3, .low = 4}}}};
  manifest.layout.groups = {
      {.name = "root",
       .part = 128,
       .planes = {{.name = "parameters", .dtype = DType::Float32},
                  {.name = "exp_avg", .dtype = DType::BFloat16}}},
      {.name = "frozen", .part = 0, .planes = {{.name = "parameters", .dtype = DType::Float64}}}};
  manifest.layout.tensors = {
      {.name = "wte.weight", .shape = {5, 20}, .group = 0, .offset = 0, .pieces = {}, .step = 1000},
      {.name = "head.weight", .shape = {7, 8}, .group = 0, .offset = 112, .pieces = {}, .step = {}},
      {.name = "boxed", .shape = {4, 6}, .group = 1, .offset = 0, .pieces = {}, .step = {}},
      {.name = "none", .shape = {0, 3}, .group = 0, .offset = 7, .pieces = {}, .step = {}}};
  manifest.layout.tensors[2].pieces = {
      {.file = 0, .box = {.offset = {0, 0}, .size = {4, 2}}, .in_box = {.begin = 0, .end = 3}},
      {.file = 1, .box = {.offset = {0, 0}, .size = {4, 2}}, .in_box = {.begin = 3, .end = 8}},
      {.file = 1, .box = {.offset = {0, 2}, .size = {4, 4}}, .in_box = {.begin = 0, .end = 16}}};
  manifest.objects["data"] = {.kind = SavedObject::Kind::Replicated,
                              .values = {nlohmann::json{{"position", 12345}, {"ratio", 0.5}}}};
  manifest.objects["keys"] = {.kind = SavedObject::Kind::PerRank, .values = {"a", nullptr}};
  return manifest;
}

// A manifest's text whose digest fits again.
inline std::string resealed(std::string_view text) {
  const std::size_t tail = text.rfind(checkpoint::kManifestDigest);
  REQUIRE(tail != std::string_view::npos);
  std::string sealed(text.substr(0, tail));
  const std::string digest = to_string(checkpoint::digest_of(sealed));
  return sealed.append(checkpoint::kManifestDigest).append(digest).append(checkpoint::kManifestEnd);
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

}  // namespace fsdptrain::testing
