#include "comm/board/futex.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdptrain::comm {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, Nanoseconds limit) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout{.tv_sec = whole.count(), .tv_nsec = (limit - whole).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fsdptrain::comm
