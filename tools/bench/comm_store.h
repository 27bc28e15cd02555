#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "comm/clock.h"
#include "comm/store/auth.h"
#include "comm/store/client.h"
#include "comm/store/server_loop.h"

// Where ranks of `bench comm` that share no memory find each other.
namespace fsdptrain::tools {

// For ranks to meet, and to part.
inline constexpr comm::Nanoseconds kCommPatience = std::chrono::minutes(1);

// A store for `num_ranks` ranks on a socket in a folder of its own, until the end of this object.
class CommStore {
 public:
  // IoError if there can be no such folder.
  explicit CommStore(int num_ranks);
  CommStore(const CommStore&) = delete;
  CommStore& operator=(const CommStore&) = delete;
  ~CommStore();

  std::filesystem::path socket() const { return folder_ / "store"; }
  const comm::store::Secret& token() const { return token_; }

 private:
  std::filesystem::path folder_;
  comm::store::Secret token_ = comm::store::Secret::random();
  // Empty only while this object is made or ends.
  std::optional<comm::store::ServerThread> server_;
};

// Joins it as one of its ranks.
std::unique_ptr<comm::Store> join_comm_store(const std::filesystem::path& socket,
                                             const comm::store::Secret& token, int rank,
                                             int num_ranks);

}  // namespace fsdptrain::tools
