#include "checkpoint/folder/visibility.h"

#include <algorithm>
#include <thread>

namespace fsdptrain::checkpoint {
namespace {

constexpr comm::Nanoseconds kLook = std::chrono::milliseconds(100);

}  // namespace

bool becomes_true(const std::function<bool()>& condition, comm::Nanoseconds within,
                  const std::function<void()>& goes_on, const comm::Clock& clock) {
  const comm::Deadline deadline(clock, within);
  while (!condition()) {
    goes_on();
    if (deadline.passed()) {
      return false;
    }
    std::this_thread::sleep_for(std::min(kLook, deadline.left()));
  }
  return true;
}

}  // namespace fsdptrain::checkpoint
