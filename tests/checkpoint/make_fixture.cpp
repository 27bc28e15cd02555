// Writes the committed fixture of the format's version into a folder that has none yet:
//
//   build/cpu/tests/checkpoint_fixture tests/checkpoint/fixture/version-1
#include <exception>
#include <fmt/core.h>

#include "tests/support/format_fixture.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: checkpoint_fixture FOLDER\n");
    return 2;
  }
  try {
    const auto files = fsdptrain::checkpoint::make_real_file_system();
    fsdptrain::testing::write_fixture(*files, argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "checkpoint_fixture: {}\n", error.what());
    return 1;
  }
  return 0;
}
