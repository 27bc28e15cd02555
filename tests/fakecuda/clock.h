#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdptrain::fakecuda {

// A vector clock: for each stream and host thread, up to which of its operations everything is
// known to have happened. Components that it does not have are 0.
class Clock {
 public:
  std::uint32_t at(std::size_t component) const {
    return component < ticks_.size() ? ticks_[component] : 0;
  }
  std::size_t size() const { return ticks_.size(); }

  std::uint32_t tick(std::size_t component) {
    ticks_.resize(std::max(ticks_.size(), component + 1));
    return ++ticks_[component];
  }

  void join(const Clock& other) {
    ticks_.resize(std::max(ticks_.size(), other.ticks_.size()));
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) {
      ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
    }
  }

 private:
  std::vector<std::uint32_t> ticks_;
};

}  // namespace fsdptrain::fakecuda
