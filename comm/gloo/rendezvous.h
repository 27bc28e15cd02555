#pragma once

#include <functional>
#include <string>

#include "comm/clock.h"

namespace fsdptrain::comm {

// Where ranks leave the addresses by which the others find them. Each key is set once, by the rank
// that it belongs to: those of rank R are "rank/R/...". Values are any bytes.
struct Rendezvous {
  std::function<void(const std::string& key, const std::string& value)> set;
  // Waits until the key is there; TimeoutError after `timeout`.
  std::function<std::string(const std::string& key, Nanoseconds timeout)> get;
};

}  // namespace fsdptrain::comm
