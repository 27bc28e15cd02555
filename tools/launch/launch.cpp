#include "tools/launch/launch.h"

#include <csignal>
#include <string>
#include <sys/prctl.h>

#include "runtime/base/error.h"
#include "tools/exit_code.h"
#include "tools/launch/job.h"

namespace fsdptrain::tools {

int launch(const LaunchOptions& options) {
  check_options(options);
  // Ends of processes are waited for, whatever whoever started this one ignores.
  std::signal(SIGCHLD, SIG_DFL);
  // What ranks leave behind comes to this process, which waits for it.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Console console;
  int code = 0;
  std::string refusal;
  {
    const SignalIntake signals;
    Job job(options, signals, console);
    code = job.run();
    refusal = job.refusal();
  }
  // Whoever reads may be slow for long; signals end the launcher as they end any program.
  console.finish();
  check<ConfigError>(refusal.empty(), "launch: {}", refusal);
  if (code == static_cast<int>(ExitCode::Done) && console.has_lost_output()) {
    code = static_cast<int>(ExitCode::Failed);
  }
  return code;
}

}  // namespace fsdptrain::tools
