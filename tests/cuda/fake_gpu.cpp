#include "runtime/base/rank_context.h"
#include "tests/cuda/gpu.h"
#include "tests/fakecuda/expect.h"

namespace fsdptrain::testing {

bool has_gpu() {
  return true;
}

std::uint64_t num_orders() {
  return 8;
}

void on_gpu_in_order(std::uint64_t order, const std::function<void()>& body) {
  fakecuda::Session session(fakecuda::checked({.seed = order}));
  {
    RankContext context({.threads = 2, .isa = {}, .log_prefix = {}});
    const ContextGuard bound(context);
    body();
  }
  session.finish();
  fakecuda::expect_no_reports(session);
}

// Outside of a session the fake has no device.
void without_gpu(const std::function<void()>& body) {
  body();
}

bool has_nans_of_cpu() {
  return true;
}

}  // namespace fsdptrain::testing
