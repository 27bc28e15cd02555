#pragma once

#include <memory>
#include <vector>

#include "comm/store/client.h"
#include "comm/store/server_loop.h"
#include "tests/comm/store/store_job.h"
#include "tests/support/sim_network.h"

namespace fsdptrain::testing {

// A served store in a simulated network, and clients as ranks use them. While one waits, the server
// and the agenda of the network go on; no time passes but that of the network's clock.
class SimStore {
 public:
  explicit SimStore(int world_size)
      : loop(network.listen(), {.job_id = "job", .token = job_token(), .world_size = world_size},
             network.clock),
        world_size_(world_size) {
    network.others = [this] { loop.step(comm::Nanoseconds{0}); };
  }

  std::unique_ptr<comm::Store> connect(comm::Store::Options options) {
    return std::make_unique<comm::Store>(network.connect(), std::move(options),
                                         std::chrono::seconds(10));
  }
  std::unique_ptr<comm::Store> join(int rank) { return connect(options(rank)); }
  comm::Store::Options options(int rank) const {
    return {
        .identity = identity_of(rank, world_size_), .token = job_token(), .clock = network.clock};
  }
  // At `delay` from now, while somebody waits.
  void later(comm::Nanoseconds delay, std::function<void()> event) {
    network.at(network.clock.now() + delay, std::move(event));
  }

  SimNetwork network;
  comm::store::ServerLoop loop;

 private:
  int world_size_;
};

}  // namespace fsdptrain::testing
