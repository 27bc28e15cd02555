#include "comm/init/worker_spec.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {

std::string to_text(const WorkerSpec& spec) {
  // The number in front is the version of the rest.
  return fmt::format("1 segment={} flight={} store={} bound={:d} processors={}", spec.segment,
                     spec.flight, spec.store, spec.is_bound, spec.num_processors);
}

WorkerSpec parse_worker_spec(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    fail<ConfigError>("{}: {}, got {}: it is set by fsdptrain launch alone", kWorkerVariable, why,
                      in_quotes(text.substr(0, 100)));
  };
  constexpr std::string_view kVersion = "1 ";
  if (!text.starts_with(kVersion)) {
    refuse("the version in front must be 1: launcher and program must be of one version");
  }
  std::string_view rest = text.substr(kVersion.size());
  const auto take = [&](std::string_view name) {
    if (!rest.starts_with(name)) {
      refuse(fmt::format("it must have {}N", name));
    }
    rest.remove_prefix(name.size());
    const std::string_view digits = rest.substr(0, rest.find(' '));
    const std::optional<int> number = parse_number(digits);
    if (!number) {
      refuse(fmt::format("{} must have a number from 0 on", name));
    }
    rest.remove_prefix(digits.size());
    return number.value_or(0);
  };
  WorkerSpec spec;
  spec.segment = take("segment=");
  spec.flight = take(" flight=");
  spec.store = take(" store=");
  const int bound = take(" bound=");
  spec.is_bound = bound == 1;
  spec.num_processors = take(" processors=");
  if (!rest.empty() || bound > 1 || spec.num_processors < 1) {
    refuse("bound must be 0 or 1, processors at least 1, and nothing may follow");
  }
  return spec;
}

}  // namespace fsdptrain::comm
