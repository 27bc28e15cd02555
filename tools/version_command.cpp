#include <fmt/format.h>
#include <vector>

#include "runtime/base/isa.h"
#include "runtime/base/rank_context.h"
#include "tools/build_info.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/library_versions.h"

namespace fsdptrain::tools {
namespace {

void print_version() {
  RankContext context;
  const BuildInfo build = build_info();
  fmt::print("fsdptrain {}\n", build.version);
  fmt::print("commit    {}\n", build.commit);
  fmt::print("compiler  {}, {}\n", build.compiler, build.build_type);
  fmt::print("gemm      {}\n", build.gemm);

  std::vector<std::string> libraries;
  for (const LibraryVersion& library : library_versions()) {
    libraries.push_back(fmt::format("{} {}", library.name, library.version));
  }
  fmt::print("libraries {}\n", fmt::join(libraries, ", "));

  std::vector<std::string_view> supported;
  for (const Isa isa : supported_isas()) {
    supported.push_back(name_of(isa));
  }
  fmt::print("isa       {} (this CPU can run {})\n", name_of(context.isa()),
             fmt::join(supported, ", "));
  fmt::print("threads   {}\n", context.pool().threads());
}

}  // namespace

Command add_version_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("version", "Say what this program was built from and what it will use");
  command->footer(R"(Examples:
  fsdptrain version
  FSDPTRAIN_ISA=baseline fsdptrain version)");
  return {command, [] {
            print_version();
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
