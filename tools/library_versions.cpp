#include "tools/library_versions.h"

#include <CLI/Version.hpp>
#include <Eigen/Core>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl_version.h>
#include <simdjson.h>
#include <spdlog/version.h>
#include <toml++/impl/version.h>
#include <xxhash.h>

#include "comm/nccl/connect.h"
#include "runtime/base/cuda_versions.h"
#include "tools/build_info.h"

namespace fsdptrain::tools {
namespace {

std::string dotted(int major, int minor, int patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string both(const std::string& built, const std::string& running) {
  return built == running ? built : fmt::format("{} (running {})", built, running);
}

}  // namespace

std::vector<LibraryVersion> library_versions() {
  std::vector<LibraryVersion> versions{
      {"CLI11", CLI11_VERSION},
      {"Eigen", dotted(EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)},
      {"fmt", dotted(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann-json", dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                               NLOHMANN_JSON_VERSION_PATCH)},
      {"simdjson", dotted(simdjson::SIMDJSON_VERSION_MAJOR, simdjson::SIMDJSON_VERSION_MINOR,
                          simdjson::SIMDJSON_VERSION_REVISION)},
      {"spdlog", dotted(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
      {"toml++", dotted(TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)},
      {"xxHash", dotted(XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE)},
  };
  if (build_info().gemm == "dnnl") {
    versions.push_back(
        {"oneDNN", dotted(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH)});
  }
  const CudaVersions cuda = cuda_versions();
  versions.push_back({"CUDA", both(cuda.built, cuda.running)});
  versions.push_back({"CUDA driver", cuda.driver});
  const comm::nccl::Versions nccl = comm::nccl::versions();
  versions.push_back({"NCCL", both(nccl.built, nccl.running)});
  return versions;
}

}  // namespace fsdptrain::tools
