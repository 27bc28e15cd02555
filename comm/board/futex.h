#pragma once

#include <atomic>
#include <cstdint>

#include "comm/clock.h"

// Sleeping on a word that threads, and processes that map the same memory, change.
namespace fsdptrain::comm {

// Sleeps while `word` holds `value`, for `limit` at most; may return early.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, Nanoseconds limit);
// Wakes all who sleep on `word`.
void futex_wake(const std::atomic<std::uint32_t>& word);

}  // namespace fsdptrain::comm
