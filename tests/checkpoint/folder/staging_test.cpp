#include "checkpoint/folder/staging.h"

#include <filesystem>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "checkpoint/folder/names.h"
#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

namespace fs = std::filesystem;

class StagingFolders {
 public:
  // A staging folder with one file in it.
  std::string stage(std::int64_t step, const std::string& text) {
    std::string attempt = make_attempt();
    write_file(make_staging(*files, root, step, attempt) / "rank-00000.safetensors", text);
    return attempt;
  }
  std::string text_of(std::int64_t step) const {
    return read_file(root / step_folder_name(step) / "rank-00000.safetensors");
  }
  std::size_t count(std::string_view name) const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(root / name), fs::directory_iterator()));
  }

  TemporaryFolder folder;
  std::unique_ptr<FileSystem> files = make_real_file_system();
  fs::path root = folder / "checkpoints";
};

TEST_SUITE("checkpoint/folder/staging") {
  TEST_CASE("a staging folder holds its attempt and is none of the steps") {
    StagingFolders folders;
    const std::string attempt = folders.stage(20, "a");
    const fs::path staging = folders.root / kStagingFolder / staging_name(20, attempt);
    CHECK(read_file(staging / kNonceName) == attempt);
    CHECK(list_steps(*folders.files, folders.root).empty());
    CHECK_THROWS_AS(make_staging(*folders.files, folders.root, 20, attempt), IoError);
  }

  TEST_CASE("folders above that are missing are made") {
    const StagingFolders folders;
    const fs::path deep = folders.root / "a/b/c";
    make_staging(*folders.files, deep, 1, make_attempt());
    CHECK(fs::is_directory(deep / ".staging"));
  }

  TEST_CASE("a commit leaves a folder with what was written and nothing else") {
    StagingFolders folders;
    const std::string attempt = folders.stage(20, "a");
    CHECK(commit_staging(*folders.files, folders.root, 20, attempt) ==
          folders.root / "step-00000020");
    CHECK(folders.text_of(20) == "a");
    CHECK(folders.count("step-00000020") == 1);
    CHECK(folders.count(kStagingFolder) == 0);
  }

  TEST_CASE("a commit replaces a checkpoint of the same step, also an empty folder") {
    StagingFolders folders;
    commit_staging(*folders.files, folders.root, 20, folders.stage(20, "old"));
    commit_staging(*folders.files, folders.root, 20, folders.stage(20, "new"));
    CHECK(folders.text_of(20) == "new");
    fs::create_directory(folders.root / "step-00000030");
    commit_staging(*folders.files, folders.root, 30, folders.stage(30, "c"));
    CHECK(folders.text_of(30) == "c");
    CHECK(folders.count(kTrashFolder) == 0);
  }

  TEST_CASE("what has a checkpoint's name and is none makes way, and nothing of it is lost") {
    StagingFolders folders;
    fs::create_directories(folders.root / "step-00000020");
    write_file(folders.root / "step-00000020/notes.txt", "mine");
    write_file(folders.root / "step-00000030", "mine, too");
    fs::create_directory_symlink(folders.folder / "elsewhere", folders.root / "step-00000040");
    std::vector<std::string> attempts;
    for (const std::int64_t step : {20, 30, 40}) {
      attempts.push_back(folders.stage(step, "new"));
      commit_staging(*folders.files, folders.root, step, attempts.back());
      CHECK(folders.text_of(step) == "new");
    }
    const auto aside = [&](std::int64_t step, std::size_t index) {
      return folders.root / (step_folder_name(step) + ".aside." + attempts[index]);
    };
    CHECK(read_file(aside(20, 0) / "notes.txt") == "mine");
    CHECK(read_file(aside(30, 1)) == "mine, too");
    CHECK(fs::is_symlink(aside(40, 2)));
    CHECK(list_steps(*folders.files, folders.root) == std::vector<std::int64_t>{40, 30, 20});
    CHECK(sweep(*folders.files, folders.root).empty());
    CHECK(fs::exists(aside(20, 0)));
  }

  TEST_CASE("a link in the place of our own folders is refused, and not followed") {
    for (const std::string_view name : {kStagingFolder, kTrashFolder}) {
      StagingFolders folders;
      commit_staging(*folders.files, folders.root, 20, folders.stage(20, "old"));
      fs::remove_all(folders.root / name);
      fs::create_directory(folders.folder / "elsewhere");
      fs::create_directory_symlink(folders.folder / "elsewhere", folders.root / name);
      CHECK_THROWS_WITH_AS(
          commit_staging(*folders.files, folders.root, 20, folders.stage(20, "new")),
          doctest::Contains("is a link or a file"), IoError);
      CHECK(fs::is_empty(folders.folder / "elsewhere"));
      CHECK(folders.text_of(20) == "old");
    }
  }

  TEST_CASE("what is discarded is gone, and what is not there needs no discarding") {
    StagingFolders folders;
    const std::string attempt = folders.stage(20, "a");
    discard_staging(*folders.files, folders.root, 20, attempt);
    discard_staging(*folders.files, folders.root, 20, attempt);
    CHECK(folders.count(kStagingFolder) == 0);
    CHECK(folders.count(kTrashFolder) == 0);
  }

  TEST_CASE("a sweep removes what attempts have left and nothing of others") {
    StagingFolders folders;
    folders.stage(20, "a");
    commit_staging(*folders.files, folders.root, 10, folders.stage(10, "b"));
    fs::create_directories(folders.root / kTrashFolder / ("step-00000005." + make_attempt()));
    for (const char* foreign : {"mine", ".staging/mine", ".staging/20.x", ".trash/mine"}) {
      fs::create_directories(folders.root / foreign);
    }
    write_file(folders.root / kStagingFolder / staging_name(20, make_attempt()), "a file");
    CHECK(sweep(*folders.files, folders.root).empty());
    CHECK(folders.count(kStagingFolder) == 3);
    CHECK(folders.count(kTrashFolder) == 1);
    CHECK(fs::exists(folders.root / "mine"));
    CHECK(folders.text_of(10) == "b");
    CHECK(sweep(*folders.files, folders.root / "missing").empty());
  }

  TEST_CASE("what was about to replace a checkpoint gets its name by a sweep where none has it") {
    StagingFolders folders;
    const std::string attempt = folders.stage(20, "new");
    const fs::path staging = folders.root / kStagingFolder / staging_name(20, attempt);
    fs::rename(staging, staging.string() + ".replacing");
    SUBCASE("none has it") {
      SUBCASE("swept") {
        CHECK(sweep(*folders.files, folders.root).empty());
      }
      SUBCASE("discarded") {
        discard_staging(*folders.files, folders.root, 20, attempt);
      }
      CHECK(folders.text_of(20) == "new");
    }
    SUBCASE("one has it") {
      commit_staging(*folders.files, folders.root, 20, folders.stage(20, "old"));
      CHECK(sweep(*folders.files, folders.root).empty());
      CHECK(folders.text_of(20) == "old");
    }
    CHECK(folders.count(kStagingFolder) == 0);
  }

  TEST_CASE("a sweep spares what a loss of power left under two names, told by the manifest") {
    StagingFolders folders;
    commit_staging(*folders.files, folders.root, 20, folders.stage(20, "a"));
    const std::string same = folders.stage(20, "a");
    const std::string other = folders.stage(20, "a");
    write_file(folders.root / "step-00000020/manifest.json", "this one");
    const fs::path staging = folders.root / kStagingFolder;
    write_file(staging / staging_name(20, same) / "manifest.json", "this one");
    write_file(staging / staging_name(20, other) / "manifest.json", "another");
    CHECK(sweep(*folders.files, folders.root).empty());
    CHECK(fs::exists(staging / staging_name(20, same)));
    CHECK_FALSE(fs::exists(staging / staging_name(20, other)));
  }

  TEST_CASE("latest names the newest checkpoint, relative to its folder") {
    StagingFolders folders;
    folders.stage(20, "a");
    write_latest(*folders.files, folders.root, 20);
    write_latest(*folders.files, folders.root, 30);
    CHECK(read_file(folders.root / kLatestName) == "step-00000030\n");
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
