#include <algorithm>
#include <fmt/format.h>
#include <functional>

#include <doctest/doctest.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/plan/layout_index.h"
#include "runtime/base/error.h"
#include "tests/support/example_manifest.h"
#include "tests/support/file_bytes.h"
#include "tests/support/memory_files.h"
#include "tests/support/random_layout.h"

// Whatever is done to the files of a checkpoint is found, and the error says what is damaged.
namespace fsdptrain::checkpoint {
namespace {

using testing::Draws;
using testing::file_text;
using testing::MemoryFiles;
using testing::put_file;

constexpr const char* kManifestPath = "/manifest.json";

// Two files of three blocks, three tensors that lie across them, two planes.
Manifest damaged_layout(const std::string& attempt) {
  Manifest manifest = testing::example_manifest();
  manifest.attempt = attempt;
  manifest.layout = {};
  manifest.layout.groups = {{.name = "g",
                             .part = 200'064,
                             .planes = {{.name = "parameters", .dtype = DType::Float32},
                                        {.name = "exp_avg", .dtype = DType::Float64}}}};
  manifest.layout.tensors = {
      {.name = "a", .shape = {100, 500}, .group = 0, .offset = 0, .pieces = {}, .step = 1},
      {.name = "b", .shape = {250'000}, .group = 0, .offset = 50'000, .pieces = {}, .step = 1},
      {.name = "c", .shape = {2, 3, 4}, .group = 0, .offset = 300'000, .pieces = {}, .step = 1}};
  return manifest;
}

void write_checkpoint(MemoryFiles& files, Manifest manifest, std::uint64_t seed) {
  const LayoutIndex index(manifest.layout);
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    SavedFile& file = manifest.files[i];
    const auto specs = index.specs_of(index.pieces_of(static_cast<std::int64_t>(i)));
    BlockFileWriter writer(files, "/" + file.name, {{"attempt", manifest.attempt}}, specs);
    for (const TensorSpec& spec : specs) {
      const auto nbytes = static_cast<std::size_t>(spec.shape.numel()) * size_of(spec.dtype);
      writer.append(testing::random_bytes(nbytes, seed + i));
    }
    file.facts = writer.finish();
  }
  put_file(files, kManifestPath, render_manifest(manifest));
}

// What verifying finds: every block of every file of the manifest.
std::string error_of(MemoryFiles& files) {
  try {
    const Manifest manifest =
        parse_manifest(kManifestPath, read_text(files, kManifestPath, kMaxManifestBytes));
    for (const SavedFile& file : manifest.files) {
      const BlockFileReader reader(files, "/" + file.name, file.facts);
      reader.verify([](std::uint64_t) {});
    }
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

// A checkpoint that is damaged and mended again, many times.
class Patient {
 public:
  Patient() {
    write_checkpoint(files_, damaged_layout("00112233445566778899aabbccddeeff"), 1);
    MemoryFiles older;
    write_checkpoint(older, damaged_layout("ffeeddccbbaa99887766554433221100"), 5);
    for (const FolderEntry& entry : files_.list("/")) {
      names_.push_back("/" + entry.name);
      texts_.push_back(file_text(files_, names_.back()));
      stale_.push_back(file_text(older, names_.back()));
    }
    REQUIRE(names_.size() == 3);
    REQUIRE(error_of(files_).empty());
  }

  const std::string& name(std::size_t file) const { return names_[file]; }
  const std::string& text(std::size_t file) const { return texts_[file]; }
  const std::string& stale(std::size_t file) const { return stale_[file]; }

  // The error with these texts in the place of some files; none: the file is removed.
  std::string error_with(const std::map<std::size_t, std::optional<std::string>>& changed) {
    for (const auto& [file, text] : changed) {
      if (text) {
        put_file(files_, names_[file], *text);
      } else {
        files_.remove_file(names_[file]);
      }
    }
    const std::string error = error_of(files_);
    for (const auto& [file, text] : changed) {
      put_file(files_, names_[file], texts_[file]);
    }
    return error;
  }

  // What an error must say of damage at a byte of a file.
  std::vector<std::string> expected_at(std::size_t file, std::size_t place) {
    if (names_[file] == kManifestPath) {
      return {kManifestPath};
    }
    const BlockFileReader reader(files_, names_[file], std::nullopt);
    const std::uint64_t data = texts_[file].size() - reader.data_nbytes();
    if (place < data) {
      return {names_[file], place < data - num_blocks_of(reader.data_nbytes()) * 8
                                ? "header"
                                : "the block table is damaged"};
    }
    const std::uint64_t block = (place - data) / kBlockBytes;
    std::vector<std::string> words = {
        names_[file], fmt::format("block {} (bytes {} to", block, data + block * kBlockBytes)};
    for (const TensorEntry& entry : reader.entries()) {
      if (entry.begin < (block + 1) * kBlockBytes && entry.end > block * kBlockBytes) {
        words.push_back("\"" + entry.name + "\"");
      }
    }
    return words;
  }

 private:
  MemoryFiles files_;
  std::vector<std::string> names_;
  std::vector<std::string> texts_;
  std::vector<std::string> stale_;
};

void check_says(const std::string& error, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    CAPTURE(error);
    CAPTURE(word);
    CHECK(error.find(word) != std::string::npos);
  }
}

}  // namespace

TEST_SUITE("checkpoint/damage") {
  TEST_CASE("500 flipped bits anywhere are found, and the part is named with all its tensors") {
    Patient patient;
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
      CAPTURE(seed);
      Draws draws(seed);
      const auto file = static_cast<std::size_t>(draws.next(0, 2));
      std::string text = patient.text(file);
      // Every other one in the beginning, which is short.
      const auto most = static_cast<std::int64_t>(text.size()) - 1;
      const auto place = static_cast<std::size_t>(
          draws.next(0, draws.next(0, 1) == 0 ? most : std::min<std::int64_t>(most, 700)));
      text[place] = static_cast<char>(text[place] ^ (1 << draws.next(0, 7)));
      check_says(patient.error_with({{file, text}}), patient.expected_at(file, place));
    }
  }

  TEST_CASE("200 stretches that became zeros or other bytes are found") {
    Patient patient;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      Draws draws(seed);
      const auto file = static_cast<std::size_t>(draws.next(0, 2));
      std::string text = patient.text(file);
      const auto begin =
          static_cast<std::size_t>(draws.next(0, static_cast<std::int64_t>(text.size()) - 1));
      const std::size_t size = std::min<std::size_t>(512, text.size() - begin);
      const std::string before = text.substr(begin, size);
      const std::string after =
          draws.next(0, 1) == 0 ? std::string(size, '\0') : patient.text(1).substr(5000, size);
      if (before == after) {
        continue;
      }
      text.replace(begin, size, after);
      check_says(patient.error_with({{file, text}}), {patient.name(file)});
    }
  }

  TEST_CASE("150 cut and 50 longer files are found") {
    Patient patient;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      Draws draws(seed);
      const auto file = static_cast<std::size_t>(draws.next(0, 2));
      const std::string& text = patient.text(file);
      const auto size =
          static_cast<std::size_t>(draws.next(0, static_cast<std::int64_t>(text.size()) - 1));
      const std::string changed =
          seed % 4 == 3 ? text + std::string(static_cast<std::size_t>(draws.next(1, 5000)), ' ')
                        : text.substr(0, size);
      check_says(patient.error_with({{file, changed}}), {patient.name(file)});
    }
  }

  TEST_CASE("swapped, stale and missing files are found") {
    Patient patient;
    REQUIRE(patient.name(0) == kManifestPath);
    check_says(patient.error_with({{1, patient.text(2)}, {2, patient.text(1)}}),
               {patient.name(1), "but the manifest says"});
    // The older ones have the same sizes.
    for (const std::size_t file : {1, 2}) {
      REQUIRE(patient.stale(file).size() == patient.text(file).size());
      check_says(patient.error_with({{file, patient.stale(file)}}),
                 {patient.name(file), "of another checkpoint"});
      check_says(patient.error_with({{file, std::nullopt}}),
                 {patient.name(file), "there is no such file"});
    }
    check_says(patient.error_with({{0, patient.stale(0)}}),
               {patient.name(1), "of another checkpoint"});
    check_says(patient.error_with({{0, std::nullopt}}), {kManifestPath, "there is no such file"});
    // All of another attempt is another checkpoint, and whole.
    CHECK(patient.error_with({{0, patient.stale(0)}, {1, patient.stale(1)}, {2, patient.stale(2)}})
              .empty());
  }

  TEST_CASE("100 edits of the manifest without a new digest are found") {
    Patient patient;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      CAPTURE(seed);
      Draws draws(seed);
      std::string text = patient.text(0);
      std::vector<std::size_t> digits;
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] >= '0' && text[i] <= '9') {
          digits.push_back(i);
        }
      }
      char& digit = text[digits[static_cast<std::size_t>(
          draws.next(0, static_cast<std::int64_t>(digits.size()) - 1))]];
      digit = static_cast<char>('0' + (digit - '0' + draws.next(1, 9)) % 10);
      check_says(patient.error_with({{0, text}}), {kManifestPath});
    }
  }

  TEST_CASE("a file that the manifest does not name changes nothing") {
    MemoryFiles files;
    write_checkpoint(files, damaged_layout("00112233445566778899aabbccddeeff"), 1);
    put_file(files, "/rank-00002.safetensors", "not read");
    CHECK(error_of(files).empty());
  }
}

}  // namespace fsdptrain::checkpoint
