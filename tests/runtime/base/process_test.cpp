#include "runtime/base/process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain {
namespace {

ProcessOptions shell(const std::string& script) {
  return {.program = "sh", .arguments = {"sh", "-c", script}};
}

// Until whoever has the other end closes it.
std::string all_of(Pipe& pipe) {
  pipe.write.close();
  std::string text;
  char byte = 0;
  while (::read(pipe.read.number(), &byte, 1) == 1) {
    text += byte;
  }
  return text;
}

TEST_SUITE("base/process") {
  TEST_CASE("a process has the arguments, the environment and the descriptors that it is given") {
    Pipe pipe = make_pipe();
    const Descriptor closed(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
    // More a shell does not know.
    REQUIRE(closed.number() < 9);
    const std::string script =
        fmt::format("echo $0 $1 $X >&9; env >&9; (: >&{}) || echo no >&9", closed.number());
    Process process(
        {.program = "/bin/sh",
         .arguments = {"sh", "-c", script, "a b", "c"},
         .environment = Environment{{"X", "value"}, {"PATH", "/usr/bin:/bin"}},
         .descriptors = {{9, pipe.write.number()}, {STDERR_FILENO, pipe.write.number()}}});
    const std::string text = all_of(pipe);
    CHECK(process.wait() == ProcessEnd{});
    CAPTURE(text);
    CHECK(text.starts_with("a b c value\n"));
    CHECK(text.find("\nX=value\n") != std::string::npos);
    CHECK(text.find("HOME=") == std::string::npos);
    CHECK(text.ends_with("no\n"));
  }

  TEST_CASE("without an environment it has that of this process") {
    Pipe pipe = make_pipe();
    ProcessOptions options = shell("echo $FSDPTRAIN_PROCESS_TEST");
    options.descriptors = {{STDOUT_FILENO, pipe.write.number()}};
    ::setenv("FSDPTRAIN_PROCESS_TEST", "set here", 1);
    CHECK(own_environment().at("FSDPTRAIN_PROCESS_TEST") == "set here");
    Process process(options);
    ::unsetenv("FSDPTRAIN_PROCESS_TEST");
    CHECK(all_of(pipe) == "set here\n");
    CHECK_FALSE(own_environment().contains("FSDPTRAIN_PROCESS_TEST"));
  }

  TEST_CASE("how it ended is told as often as one asks") {
    Process exited(shell("exit 3"));
    Process killed(shell("kill -SEGV $$"));
    for (int i = 0; i < 2; ++i) {
      CHECK(exited.wait() == ProcessEnd{.value = 3});
      CHECK(killed.wait() == ProcessEnd{.value = SIGSEGV, .is_signal = true});
      CHECK(exited.poll() == ProcessEnd{.value = 3});
    }
    CHECK(exited.id() == 0);
    CHECK(to_string(exited.wait()) == "ended with exit code 3");
    CHECK(to_string(killed.wait()) == "was ended by signal 11 (SIGSEGV)");
    CHECK(to_string({.value = 40, .is_signal = true}) == "was ended by signal 40");
    CHECK(exited.wait().shell_code() == 3);
    CHECK(killed.wait().shell_code() == 139);
  }

  TEST_CASE("while it runs there is no end to be taken, and then there is one") {
    Pipe pipe = make_pipe();
    ProcessOptions options = shell("read line");
    options.descriptors = {{STDIN_FILENO, pipe.read.number()}};
    const pid_t id = start_process(options);
    CHECK_FALSE(take_end(id).has_value());
    pipe.write.close();
    std::optional<ProcessEnd> end;
    while (!end) {
      end = take_end(id);
    }
    CHECK(end == ProcessEnd{.value = 1});
    CHECK_FALSE(take_end(id).has_value());
  }

  TEST_CASE("it ends with its owner, and is waited for") {
    pid_t id = 0;
    {
      Process first(shell("trap '' TERM; exec sleep 1000"));
      const Process owner(std::move(first));
      id = owner.id();
      first.send(SIGKILL);
      CHECK(::kill(id, 0) == 0);
    }
    CHECK(::waitpid(id, nullptr, WNOHANG) == -1);
    CHECK(errno == ECHILD);
  }

  TEST_CASE("a group of its own is only where it is asked for") {
    ProcessOptions options = shell("exec sleep 1000");
    const Process in_ours(options);
    options.has_own_group = true;
    const Process in_its_own(options);
    CHECK(::getpgid(in_ours.id()) == ::getpgid(0));
    CHECK(::getpgid(in_its_own.id()) == in_its_own.id());
  }

  TEST_CASE("what cannot be started is named") {
    CHECK_THROWS_WITH_AS(
        Process({.program = "no-such-program", .arguments = {"no-such-program"}}),
        doctest::Contains("a process of no-such-program cannot be started: No such file or"),
        IoError);
    CHECK_THROWS_WITH_AS(Process({.program = "true", .arguments = {}}),
                         doctest::Contains("process: the name of true is missing"), Error);
    // 1 would be what 0 was put there for.
    CHECK_THROWS_WITH_AS(
        Process({.program = "true", .arguments = {"true"}, .descriptors = {{0, 2}, {1, 0}}}),
        doctest::Contains("process: descriptor 0 is put at 1 when another has its number"), Error);
    CHECK(Process({.program = "true", .arguments = {"true"}, .descriptors = {{0, 1}, {1, 2}}})
              .wait() == ProcessEnd{});
  }
}

}  // namespace
}  // namespace fsdptrain
