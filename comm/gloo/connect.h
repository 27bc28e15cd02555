#pragma once

#include <functional>

#include "comm/gloo/mesh.h"
#include "comm/gloo/rendezvous.h"
#include "comm/link/links.h"

namespace fsdptrain::comm {

// How a rank reaches ranks of other hosts.
struct Network {
  NetworkAddress address;
  Rendezvous rendezvous;
  // For all ranks to come.
  Nanoseconds timeout = std::chrono::minutes(10);
};

// Joins the `size` ranks of a world as `rank`, once, and blocks until all have. `notify` is called,
// from any thread, when a peer has changed what a rank may wait for. Errors are those of
// make_device() and Mesh.
Links connect_gloo(const Network& network, int rank, int size,
                   const std::function<void()>& notify = {});

}  // namespace fsdptrain::comm
