#include "tools/exit_code.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {

int exit_code_of(const std::exception& error) {
  if (const auto* stopped = dynamic_cast<const StoppedError*>(&error)) {
    return static_cast<int>(ExitCode::Signalled) + stopped->signal();
  }
  const bool refused = dynamic_cast<const ConfigError*>(&error) != nullptr ||
                       dynamic_cast<const DataError*>(&error) != nullptr ||
                       dynamic_cast<const PathError*>(&error) != nullptr ||
                       dynamic_cast<const ShapeError*>(&error) != nullptr;
  return static_cast<int>(refused ? ExitCode::Refused : ExitCode::Failed);
}

}  // namespace fsdptrain::tools
