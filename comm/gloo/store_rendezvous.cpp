#include "comm/gloo/store_rendezvous.h"

namespace fsdptrain::comm {

Rendezvous store_rendezvous(Store& store, Nanoseconds set_timeout) {
  return {.set = [&store, set_timeout](
                     const std::string& key,
                     const std::string& value) { store.set(key, value, set_timeout); },
          .get = [&store](const std::string& key,
                          Nanoseconds timeout) { return store.get(key, timeout); }};
}

}  // namespace fsdptrain::comm
