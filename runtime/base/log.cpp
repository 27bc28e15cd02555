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

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void log_line(LogLevel level, std::string_view text) {
  make_logger().log(to_spdlog(level), "{}{}", bound_log_prefix(), text);
}

}  // namespace fsdptrain
