#include "checkpoint/folder/names.h"

#include <limits>
#include <set>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

TEST_SUITE("checkpoint/folder/names") {
  TEST_CASE("a step's folder has eight digits, more where it takes them, and is read back") {
    CHECK(step_folder_name(0) == "step-00000000");
    CHECK(step_folder_name(20) == "step-00000020");
    CHECK(step_folder_name(1234567890123) == "step-1234567890123");
    constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t step :
         {std::int64_t{0}, std::int64_t{99999999}, std::int64_t{100000000}, kLargest}) {
      CAPTURE(step);
      CHECK(step_of(step_folder_name(step)) == step);
    }
  }

  TEST_CASE("what is not spelt as a step's folder is none") {
    for (const char* name :
         {"", "step-", "step-20", "step-0000020", "step-000000020", "step-00000020.old",
          "xstep-00000020", "step-00000020 ", " step-00000020", "step--0000020", "step-+0000020",
          "step-0x000020", "step-99999999999999999999", "Step-00000020", "step-0000002a"}) {
      CAPTURE(name);
      CHECK_FALSE(step_of(name));
    }
  }

  TEST_CASE("attempts differ, and staging folders are known by theirs") {
    std::set<std::string> attempts;
    for (int i = 0; i < 100; ++i) {
      attempts.insert(make_attempt());
    }
    CHECK(attempts.size() == 100);
    const std::string attempt = *attempts.begin();
    CHECK(is_attempt(attempt));
    CHECK(step_of_staging(staging_name(20, attempt)) == 20);
    for (const std::string& name :
         {std::string("20"), "20." + attempt.substr(1), "020." + attempt, "." + attempt,
          "-1." + attempt, "20." + attempt + ".x", "mine." + attempt}) {
      CAPTURE(name);
      CHECK_FALSE(step_of_staging(name));
    }
  }

  TEST_CASE(
      "steps are listed newest first, links too and no files, and none where there is no folder") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    CHECK(list_steps(*files, folder / "missing").empty());
    for (const char* name :
         {"step-00000003", "step-00000020", "step-100000000", "step-7", "mine"}) {
      files->make_folder(folder / name);
    }
    write_file(folder / "step-00000050", "a file");
    std::filesystem::create_directory_symlink("mine", folder / "step-00000021");
    CHECK(list_steps(*files, folder.path()) == std::vector<std::int64_t>{100000000, 21, 20, 3});
  }

  TEST_CASE("a folder that is none is not taken for an empty one") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    write_file(folder / "file", "");
    CHECK_THROWS_AS(list_steps(*files, folder / "file"), Error);
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
