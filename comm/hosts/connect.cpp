#include "comm/hosts/connect.h"

#include <algorithm>
#include <utility>

#include "comm/error.h"
#include "comm/hosts/host_link.h"
#include "comm/shm/connect.h"

namespace fsdptrain::comm {

Links connect_hosts(const std::shared_ptr<const Segment>& segment, const Network& network,
                    const std::vector<int>& hosts, int rank, bool spins) {
  const int size = static_cast<int>(hosts.size());
  check<ConfigError>(rank >= 0 && rank < size, "rank {} has no host: there are those of {} ranks",
                     rank, size);
  const auto local_rank = static_cast<int>(
      std::count(hosts.begin(), hosts.begin() + rank, hosts[static_cast<std::size_t>(rank)]));
  Links local = connect_shm(segment, local_rank, spins);
  // Who waits for both waits at the boards of the host.
  Links remote = connect_gloo(network, rank, size, [segment, local_rank] {
    segment->training().ring(local_rank);
    segment->control().ring(local_rank);
  });
  return {std::make_unique<HostLink>(std::move(local.training), std::move(remote.training), hosts),
          std::make_unique<HostLink>(std::move(local.control), std::move(remote.control), hosts)};
}

}  // namespace fsdptrain::comm
