#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

// For what ends a process.
namespace fsdptrain::fakecuda {

// What a process prints to stderr that does `body`, and its exit status.
struct Ending {
  std::string text;
  int status = -1;
};

template <class Body>
Ending run_in_child(Body body) {
  std::array<int, 2> ends = {};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  Ending ending;
  std::array<char, 512> buffer = {};
  for (ssize_t nbytes = 1; nbytes > 0;) {
    nbytes = read(ends[0], buffer.data(), buffer.size());
    ending.text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(nbytes, 0)));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  ending.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ending;
}

}  // namespace fsdptrain::fakecuda
