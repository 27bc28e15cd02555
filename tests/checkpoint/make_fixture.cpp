// Writes the committed fixture of the format's version into a folder that has none yet:
//
//   build/cpu/tests/checkpoint_fixture tests/checkpoint/fixture/version-1
#include <cstdio>
#include <exception>

#include "tests/support/format_fixture.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: checkpoint_fixture FOLDER\n", stderr);
    return 2;
  }
  try {
    const auto files = fsdptrain::checkpoint::make_real_file_system();
    fsdptrain::testing::write_fixture(*files, argv[1]);
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    std::fputs("\n", stderr);
    return 1;
  }
  return 0;
}
