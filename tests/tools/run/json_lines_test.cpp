#include "tools/run/json_lines.h"

#include <csignal>
#include <string>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::tools {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

TEST_SUITE_BEGIN("tools/run/json_lines");

TEST_CASE("every line is in the file as soon as it is written") {
  const TemporaryFolder folder;
  JsonLinesWriter lines(folder / "m");
  CHECK(read_file(folder / "m").empty());
  lines.write(R"({"step":1})");
  CHECK(read_file(folder / "m") == "{\"step\":1}\n");
  lines.write(R"({"step":2})");
  CHECK(read_file(folder / "m") == "{\"step\":1}\n{\"step\":2}\n");
}

TEST_CASE("a file that exists is left alone") {
  const TemporaryFolder folder;
  testing::write_file(folder / "m", "precious");
  CHECK_THROWS_WITH_AS(JsonLinesWriter(folder / "m"), doctest::Contains("m: exists already"),
                       IoError);
  CHECK_THROWS_WITH_AS(JsonLinesWriter(folder / "none/m"), doctest::Contains("create the folder"),
                       IoError);
  CHECK(read_file(folder / "m") == "precious");
}

TEST_CASE("lines go behind those that are there, without what is left of one that was cut short") {
  const TemporaryFolder folder;
  const std::string many = std::string(70000, 'x') + "\n";
  for (const std::string& before : {std::string(), std::string("a\n"), "a\n" + many}) {
    for (const std::string& rest : {std::string(), std::string("{\"st"), std::string(70000, 'y')}) {
      testing::write_file(folder / "m", before + rest);
      JsonLinesWriter lines(folder / "m", JsonLinesWriter::Mode::Append);
      CHECK(read_file(folder / "m") == before);
      lines.write("next");
      CHECK(read_file(folder / "m") == before + "next\n");
    }
  }
  JsonLinesWriter(folder / "new", JsonLinesWriter::Mode::Append).write("first");
  CHECK(read_file(folder / "new") == "first\n");
}

TEST_CASE("a write cut short leaves whole lines and names the system's reason, not another") {
  const TemporaryFolder folder;
  JsonLinesWriter lines(folder / "m");
  lines.write("first");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{10, before.rlim_max};  // 4 bytes into the second line
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::string message;
  try {
    lines.write("second");
  } catch (const IoError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CAPTURE(message);
  CHECK(message.find("File too large; raise the limit") != std::string::npos);
  CHECK(message.find("half a line") == std::string::npos);
  CHECK(read_file(folder / "m") == "first\n");
  lines.write("third");
  CHECK(read_file(folder / "m") == "first\nthird\n");
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
