#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"

// Tests run under a rank context of two compute threads.
int main(int argc, char** argv) {
  doctest::Context doctest_context(argc, argv);
  fsdptrain::RankContext rank_context({.threads = 2, .isa = {}, .log_prefix = {}});
  const fsdptrain::ContextGuard bound(rank_context);
  return doctest_context.run();
}
