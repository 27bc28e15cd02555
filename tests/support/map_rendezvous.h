#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/error.h"
#include "comm/gloo/connect.h"

namespace fsdptrain::testing {

// For ranks that are threads of one process; copies share one map.
inline comm::Rendezvous map_rendezvous() {
  struct Map {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> values;
  };
  const auto map = std::make_shared<Map>();
  return {.set =
              [map](const std::string& key, const std::string& value) {
                {
                  const std::lock_guard lock(map->mutex);
                  map->values[key] = value;
                }
                map->changed.notify_all();
              },
          .get =
              [map](const std::string& key, comm::Nanoseconds timeout) {
                std::unique_lock lock(map->mutex);
                check<comm::TimeoutError>(map->changed.wait_for(
                                              lock, timeout,
                                              [&] { return map->values.contains(key); }),
                                          "key '{}' is not there", key);
                return map->values[key];
              }};
}

// Ranks of one process, over the loopback interface.
inline comm::Network loopback() {
  return {.address = {.host = "127.0.0.1", .interface = {}},
          .rendezvous = map_rendezvous(),
          .timeout = std::chrono::seconds(30)};
}

}  // namespace fsdptrain::testing
