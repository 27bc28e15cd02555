#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "comm/store/client.h"
#include "comm/store/server_loop.h"
#include "comm/store/unix_transport.h"
#include "tests/support/store_token.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::testing {

// A store on a socket, served by its thread.
class ServedStore {
 public:
  explicit ServedStore(int world_size)
      : server_(comm::store::listen_unix(path_),
                {.job_id = std::string(kStoreJob), .token = token(), .world_size = world_size}),
        world_size_(world_size) {}

  // Joins as a rank.
  std::unique_ptr<comm::Store> join(int rank) const {
    const comm::Clock& clock = comm::monotonic_clock();
    return std::make_unique<comm::Store>(
        comm::store::connect_unix(path_, clock, kTimeout),
        comm::Store::Options{
            .identity = {.job_id = std::string(kStoreJob), .rank = rank, .world_size = world_size_},
            .token = token()},
        kTimeout);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  // Far beyond what anything here takes.
  static constexpr comm::Nanoseconds kTimeout = std::chrono::minutes(1);

  static comm::store::Secret token() { return comm::store::Secret::from_bytes(kStoreToken); }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "job/store";
  comm::store::ServerThread server_;
  int world_size_;
};

}  // namespace fsdptrain::testing
