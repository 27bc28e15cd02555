#include "tools/launch/worker_environment.h"

namespace fsdptrain::tools {

Environment worker_environment(const Environment& base, const Worker& worker) {
  Environment environment = base;
  const auto set = [&](const char* name, std::string value) {
    environment[name] = std::move(value);
  };
  const std::string rank = std::to_string(worker.rank);
  const std::string size = std::to_string(worker.num_ranks);
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) {
    set(name, rank);
  }
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    set(name, size);
  }
  set("GROUP_RANK", "0");
  set("GROUP_WORLD_SIZE", "1");
  set("ROLE_NAME", worker.role);
  set("MASTER_ADDR", worker.master_addr);
  set("MASTER_PORT", std::to_string(worker.master_port));
  set(kJobVariable, worker.job_id);
  set("TORCHELASTIC_RESTART_COUNT", "0");
  set("TORCHELASTIC_MAX_RESTARTS", "0");
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  environment.erase("TORCHELASTIC_ERROR_FILE");
  if (worker.error_file) {
    set("TORCHELASTIC_ERROR_FILE", worker.error_file->native());
  }
  environment.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  environment.try_emplace("OMP_NUM_THREADS", std::to_string(worker.num_threads));
  set(comm::kWorkerVariable, comm::to_text(worker.spec));
  environment.erase("FSDPTRAIN_TERMINAL");
  if (worker.terminal_columns) {
    set("FSDPTRAIN_TERMINAL", std::to_string(*worker.terminal_columns));
  }
  return environment;
}

}  // namespace fsdptrain::tools
