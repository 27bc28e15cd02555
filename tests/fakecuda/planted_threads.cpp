#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <map>
#include <string>

#include "tests/fakecuda/two_ranks.h"

// A mistake by name, for the thread sanitizer to find; its exit code is the sanitizer's.
int main(int argc, char** argv) {
  using namespace fsdptrain::fakecuda;
  const std::map<std::string, Missing> mistakes = {
      {"nothing", Missing::Nothing},
      {"copy_before_kernel", Missing::CopyBeforeKernel},
      {"kernel_before_gather", Missing::KernelBeforeGather},
      {"host_before_read", Missing::HostBeforeRead}};
  const auto mistake = mistakes.find(argc == 2 ? argv[1] : "");
  if (mistake == mistakes.end()) {
    std::fputs("usage: planted_threads MISTAKE\n", stderr);
    return 2;
  }
  // The clocks' own reports are no subject here.
  Session session({.mode = Mode::Threads, .num_devices = 2, .unseen = [](const std::string&) {}});
  TwoRanks(mistake->second).run(session);
  session.finish();
  return 0;
}
