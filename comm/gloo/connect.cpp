#include "comm/gloo/connect.h"

#include <fmt/format.h>

#include "comm/error.h"
#include "comm/gloo/gloo_link.h"

namespace fsdptrain::comm {
namespace {

// A rank that ended while another still connects would end that one inside gloo.
void wait_for_all(const Network& network, int rank, int size) {
  const auto key = [](int of) { return fmt::format("rank/{}/gloo/connected", of); };
  const Deadline deadline(monotonic_clock(), network.timeout);
  network.rendezvous.set(key(rank), "");
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) {
      continue;
    }
    try {
      network.rendezvous.get(key(peer), deadline.left());
    } catch (TimeoutError& error) {
      error.add_context(
          fmt::format("gloo: rank {} waits for rank {}, which has not connected", rank, peer));
      throw;
    }
  }
}

}  // namespace

Links connect_gloo(const Network& network, int rank, int size,
                   const std::function<void()>& notify) {
  check<ConfigError>(rank >= 0 && rank < size, "rank {} is none of the {} ranks of the world", rank,
                     size);
  const auto device = make_device(network.address);
  const auto link = [&](const char* name) {
    return std::make_unique<GlooLink>(
        std::make_unique<Mesh>(device, network.rendezvous,
                               Mesh::Options{rank, size, name, network.timeout}),
        notify);
  };
  Links links;
  links.training = link("training");
  links.control = link("control");
  wait_for_all(network, rank, size);
  return links;
}

}  // namespace fsdptrain::comm
