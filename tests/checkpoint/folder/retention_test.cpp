#include "checkpoint/folder/retention.h"

#include <algorithm>
#include <cerrno>

#include <doctest/doctest.h>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/scan.h"
#include "runtime/base/random.h"
#include "tests/support/faulty_files.h"
#include "tests/support/memory_files.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FaultyFiles;
using testing::FileCall;
using testing::FileFault;
using testing::MemoryFiles;

const std::filesystem::path kFolder = "/checkpoints";

using Steps = std::vector<std::int64_t>;

// A checkpoint without tensors, whose one file is as the manifest says, or not.
void add_checkpoint(FileSystem& files, std::int64_t step, bool is_valid) {
  const std::filesystem::path folder = kFolder / step_folder_name(step);
  files.make_folder(folder);
  BlockFileWriter writer(files, folder / "rank-00000.safetensors", {}, {});
  Manifest manifest{.step = step,
                    .attempt = make_attempt(),
                    .num_ranks = 1,
                    .created = "2026-01-01T00:00:00Z",
                    .writer = "test",
                    .files = {{.name = "rank-00000.safetensors", .facts = writer.finish()}},
                    .layout = {},
                    .objects = {}};
  if (!is_valid) {
    ++manifest.files.front().facts.nbytes;
  }
  replace_text(files, folder / kManifestName, render_manifest(manifest));
}

TEST_SUITE("checkpoint/folder/retention") {
  TEST_CASE("the newest stay, and those that are named") {
    const Steps valid = {50, 40, 30, 20, 10};
    CHECK(steps_to_remove(valid, {.keep_last = 2}) == Steps{30, 20, 10});
    CHECK(steps_to_remove(valid, {.keep_last = 2, .keep_steps = {20, 50, 99}}) == Steps{30, 10});
    CHECK(steps_to_remove(valid, {.keep_last = 1}) == Steps{40, 30, 20, 10});
    CHECK(steps_to_remove(valid, {.keep_last = 5}).empty());
    CHECK(steps_to_remove(valid, {.keep_last = 9}).empty());
    CHECK(steps_to_remove(valid, {.keep_last = 0}).empty());
    CHECK(steps_to_remove({}, {.keep_last = 1}).empty());
  }

  TEST_CASE("what a run has committed stays, whatever lies beyond it") {
    const Steps valid = {100, 90, 80, 70};
    CHECK(steps_to_remove(valid, {.keep_last = 1, .newest = 90}) == Steps{80, 70});
    CHECK(steps_to_remove(valid, {.keep_last = 2, .newest = 90}) == Steps{70});
    CHECK(steps_to_remove(valid, {.keep_last = 1, .newest = 60}).empty());
  }

  TEST_CASE("of any mix, the newest valid ones stay, and all that is not valid or no checkpoint") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      const auto draw = [&](std::uint64_t index, std::uint64_t limit) {
        return philox(index, seed, 9).word[0] % limit;
      };
      MemoryFiles files;
      files.make_folder(kFolder);
      for (const char* foreign : {"mine", "step-3", ".staging", "step-00000004.old"}) {
        files.make_folder(kFolder / foreign);
      }
      Steps valid;
      Steps invalid;
      for (std::int64_t step = 1; step <= 8; ++step) {
        const std::uint64_t kind = draw(static_cast<std::uint64_t>(step), 3);
        if (kind > 0) {
          add_checkpoint(files, step, kind == 1);
          (kind == 1 ? valid : invalid).push_back(step);
        }
      }
      const auto keep = static_cast<std::int64_t>(draw(100, 4));
      const auto resumed = static_cast<std::int64_t>(draw(101, 8)) + 1;
      CHECK(remove_old(files, kFolder, {.keep_last = keep, .keep_steps = {resumed}}).empty());

      Steps expected;
      for (std::size_t i = 0; i < valid.size(); ++i) {
        const bool is_new = static_cast<std::int64_t>(valid.size() - i) <= keep || keep == 0;
        if (is_new || valid[i] == resumed) {
          expected.push_back(valid[i]);
        }
      }
      std::ranges::reverse(expected);
      const Scan left = scan(files, kFolder);
      CHECK(left.valid == expected);
      CHECK(left.invalid.size() == invalid.size());
      for (const char* foreign : {"mine", "step-3", ".staging", "step-00000004.old"}) {
        CHECK(files.kind_of(kFolder / foreign));
      }
    }
  }

  TEST_CASE("what cannot be removed is said, and the others are removed") {
    MemoryFiles files;
    files.make_folder(kFolder);
    for (const std::int64_t step : {10, 20, 30, 40}) {
      add_checkpoint(files, step, true);
    }
    FaultyFiles faulty(
        files, {.kind = FileFault::Kind::Errno,
                .error = EACCES,
                .counts = [](FileCall call, const auto&) { return call == FileCall::Rename; }});
    const auto problems = remove_old(faulty, kFolder, {.keep_last = 1});
    REQUIRE(problems.size() == 1);
    CHECK(problems.front().find("step-00000030") != std::string::npos);
    CHECK(scan(files, kFolder).valid == Steps{40, 30});
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
