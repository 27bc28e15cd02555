#include "comm/gloo/connect.h"

#include "comm/error.h"
#include "comm/gloo/gloo_link.h"

namespace fsdptrain::comm {

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
  return links;
}

}  // namespace fsdptrain::comm
