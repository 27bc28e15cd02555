#pragma once

#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "comm/run_ranks.h"
#include "comm/shm/connect.h"
#include "comm/shm/segment.h"
#include "tests/support/map_rendezvous.h"

namespace fsdptrain::testing {

// Ways for ranks that are threads of the test to reach each other.
enum class Backend { Threads, Shm, Gloo };

inline const std::vector<Backend>& all_backends() {
  static const std::vector<Backend> all{Backend::Threads, Backend::Shm, Backend::Gloo};
  return all;
}

inline std::string name_of(Backend backend) {
  switch (backend) {
    case Backend::Threads:
      return "threads";
    case Backend::Shm:
      return "shm";
    case Backend::Gloo:
      return "gloo";
  }
  return "";
}

inline comm::ThreadRanks thread_ranks(Backend backend, int num_ranks,
                                      std::uint64_t arena_bytes = std::uint64_t{64} << 20) {
  comm::ThreadRanks ranks{.num_ranks = num_ranks};
  if (backend == Backend::Shm) {
    const int descriptor = comm::Segment::create({num_ranks, arena_bytes});
    const auto segment = std::make_shared<const comm::Segment>(descriptor);
    ::close(descriptor);
    ranks.connect = [segment](int rank) { return comm::connect_shm(segment, rank, false); };
  }
  if (backend == Backend::Gloo) {
    ranks.connect = [network = loopback(), num_ranks](int rank) {
      return comm::connect_gloo(network, rank, num_ranks);
    };
  }
  return ranks;
}

}  // namespace fsdptrain::testing
