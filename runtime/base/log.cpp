#include "runtime/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "runtime/base/rank_context.h"

namespace fsdptrain {
namespace {

spdlog::logger make_logger() {
  spdlog::logger logger("fsdptrain", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger.set_pattern("%^%l%$: %v");
  return logger;
}

}  // namespace

void log_warning_line(std::string_view text) {
  make_logger().warn("{}{}", bound_log_prefix(), text);
}

}  // namespace fsdptrain
