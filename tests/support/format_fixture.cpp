#include "tests/support/format_fixture.h"

#include <algorithm>
#include <fmt/format.h>

#include "checkpoint/plan/layout_index.h"
#include "checkpoint/plan/read_plan.h"
#include "tests/support/random_layout.h"

namespace fsdptrain::testing {

using checkpoint::HeldPiece;
using checkpoint::Manifest;
using checkpoint::SavedLayout;
using checkpoint::SavedObject;
using checkpoint::SavedTensor;

namespace {

constexpr std::int64_t kNumFiles = 3;
constexpr std::int64_t kStep = 20;
constexpr const char* kAttempt = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

SavedTensor flat(const char* name, const Shape& shape, std::int64_t group, std::int64_t offset,
                 std::optional<std::int64_t> step) {
  return {
      .name = name, .shape = shape, .group = group, .offset = offset, .pieces = {}, .step = step};
}

// Two columns of boxes, of which the second is shared out among two files.
SavedTensor boxed() {
  SavedTensor tensor = flat("layers.0.wide.weight", {6, 10}, 1, 0, kStep);
  tensor.pieces = {
      {.file = 0, .box = {.offset = {0, 0}, .size = {6, 4}}, .in_box = {.begin = 0, .end = 24}},
      {.file = 1, .box = {.offset = {0, 4}, .size = {6, 6}}, .in_box = {.begin = 0, .end = 17}},
      {.file = 2, .box = {.offset = {0, 4}, .size = {6, 6}}, .in_box = {.begin = 17, .end = 36}}};
  return tensor;
}

checkpoint::SavedFile write_file(checkpoint::FileSystem& files, const std::filesystem::path& folder,
                                 const SavedLayout& layout, std::int64_t file) {
  const std::string name = fmt::format("rank-{:05}.safetensors", file);
  const checkpoint::LayoutIndex index(layout);
  const std::vector<HeldPiece> pieces = index.pieces_of(file);
  checkpoint::BlockFileWriter writer(files, folder / name,
                                     {{"attempt", kAttempt}, {"step", fmt::to_string(kStep)}},
                                     index.specs_of(pieces));
  for (const HeldPiece& held : pieces) {
    const SavedTensor& tensor = layout.tensors[held.tensor];
    const std::vector<std::byte> values = fixture_values(held.tensor, held.plane);
    const std::size_t width = size_of(layout.groups[held.group].planes[held.plane].dtype);
    const checkpoint::Box box =
        held.piece != nullptr ? held.piece->box : checkpoint::wanted_range(tensor.shape, {}).box;
    for (std::int64_t i = held.elements.begin; i < held.elements.end; ++i) {
      const auto place = static_cast<std::size_t>(index_in_tensor(tensor.shape, box, i)) * width;
      writer.append(std::span(values).subspan(place, width));
    }
  }
  return {.name = name, .facts = writer.finish()};
}

}  // namespace

SavedLayout fixture_layout() {
  SavedLayout layout;
  layout.groups = {{.name = "root",
                    .part = 64,
                    .planes = {{.name = "parameters", .dtype = DType::Float32},
                               {.name = "exp_avg", .dtype = DType::BFloat16},
                               {.name = "exp_avg_sq", .dtype = DType::Float32},
                               {.name = "average", .dtype = DType::Float64}}},
                   {.name = "layers.0",
                    .part = 16,
                    .planes = {{.name = "parameters", .dtype = DType::BFloat16}}}};
  layout.tensors = {flat("embedding.weight", {9, 11}, 0, 0, kStep),
                    flat("head.weight", {5, 3}, 0, 112, kStep),
                    flat("scale", {}, 0, 128, 7),
                    flat("nothing", {0, 4}, 0, 144, kStep),
                    boxed(),
                    flat("layers.0.norm.weight", {40}, 1, 2, std::nullopt)};
  return layout;
}

std::vector<std::byte> fixture_values(std::size_t tensor, std::size_t plane) {
  const SavedLayout layout = fixture_layout();
  const SavedTensor& saved = layout.tensors[tensor];
  const DType dtype = layout.groups[static_cast<std::size_t>(saved.group)].planes[plane].dtype;
  std::vector<std::byte> values(static_cast<std::size_t>(saved.shape.numel()) * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::byte>((i * 7 + tensor * 31 + plane * 101 + i / 256) % 256);
  }
  return values;
}

void write_fixture(checkpoint::FileSystem& files, const std::filesystem::path& folder) {
  const std::filesystem::path place = folder / kFixtureFolder;
  files.make_folder(place);
  Manifest manifest;
  manifest.step = kStep;
  manifest.attempt = kAttempt;
  manifest.num_ranks = kNumFiles;
  manifest.created = "2026-11-30T22:00:00Z";
  manifest.writer = "fsdptrain 0.1.0";
  manifest.layout = fixture_layout();
  for (std::int64_t file = 0; file < kNumFiles; ++file) {
    manifest.files.push_back(write_file(files, place, manifest.layout, file));
  }
  manifest.objects["schedule"] = {.kind = SavedObject::Kind::Replicated,
                                  .values = {nlohmann::json{{"warmup", 5}, {"peak", 0.0003}}}};
  manifest.objects["sampler"] = {.kind = SavedObject::Kind::PerRank,
                                 .values = {{1, 2, 3}, "\xc3\xa9\n", nullptr}};
  checkpoint::replace_text(files, place / checkpoint::kManifestName,
                           checkpoint::render_manifest(manifest));
}

}  // namespace fsdptrain::testing
