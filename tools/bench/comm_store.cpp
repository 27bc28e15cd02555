#include "tools/bench/comm_store.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "comm/store/unix_transport.h"
#include "runtime/base/error.h"
#include "tools/bench/temporary_folder.h"

namespace fsdptrain::tools {
namespace {

constexpr const char* kJob = "bench comm";

std::filesystem::path make_folder() {
  std::string name = temporary_folder() / "fsdptrain-bench-XXXXXX";
  const bool is_made = ::mkdtemp(name.data()) != nullptr;
  check<IoError>(is_made, "bench comm: no folder {}: {}", name, std::strerror(errno));
  return name;
}

void remove_folder(const std::filesystem::path& folder) noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace

CommStore::CommStore(int num_ranks) : folder_(make_folder()) {
  try {
    server_.emplace(
        comm::store::listen_unix(socket()),
        comm::store::ServerOptions{.job_id = kJob, .token = token_, .world_size = num_ranks});
  } catch (...) {
    remove_folder(folder_);
    throw;
  }
}

CommStore::~CommStore() {
  server_.reset();
  remove_folder(folder_);
}

std::unique_ptr<comm::Store> join_comm_store(const std::filesystem::path& socket,
                                             const comm::store::Secret& token, int rank,
                                             int num_ranks) {
  return std::make_unique<comm::Store>(
      comm::store::connect_unix(socket, comm::monotonic_clock(), kCommPatience),
      comm::Store::Options{.identity = {.job_id = kJob, .rank = rank, .world_size = num_ranks},
                           .token = token},
      kCommPatience);
}

}  // namespace fsdptrain::tools
