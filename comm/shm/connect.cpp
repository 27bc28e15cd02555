#include "comm/shm/connect.h"

#include "comm/board/board_link.h"
#include "comm/error.h"
#include "comm/shm/host_memory.h"

namespace fsdptrain::comm {

Links connect_shm(const std::shared_ptr<const Segment>& segment, int rank, bool spins) {
  check<ConfigError>(rank >= 0 && rank < segment->shape().num_ranks,
                     "rank {} is none of the {} ranks of this host", rank,
                     segment->shape().num_ranks);
  const auto memory = std::make_shared<HostMemory>(segment, segment->training(), rank);
  const BoardLink::Options options{.rank = rank, .spins = spins};
  Links links{std::make_unique<BoardLink>(segment->training(), memory, options),
              std::make_unique<BoardLink>(segment->control(), memory, options)};
  memory->announce();
  return links;
}

}  // namespace fsdptrain::comm
