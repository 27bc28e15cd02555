#include "checkpoint/state/agreement.h"

#include <array>
#include <cstddef>
#include <exception>
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

// A type of errors.
struct Kind {
  bool (*is)(const std::exception&);
  void (*raise)(const std::string& text);
};

template <class E>
constexpr Kind kind_of() {
  return {
      .is = [](const std::exception& error) { return dynamic_cast<const E*>(&error) != nullptr; },
      .raise = [](const std::string& text) { throw E(text); }};
}

// The last one is for all that is none of the others.
constexpr std::array kKinds = {
    kind_of<ShapeError>(),    kind_of<DTypeError>(),   kind_of<DeviceError>(),
    kind_of<AutogradError>(), kind_of<StorageError>(), kind_of<OutOfMemoryError>(),
    kind_of<ConfigError>(),   kind_of<DataError>(),    kind_of<IoError>(),
    kind_of<Error>(),
};

// On the wire, the first character: all is well, or the number of a kind from here on.
constexpr char kDone = '+';
constexpr char kFirstKind = 'A';

std::string report_of(const std::exception& error) {
  std::size_t kind = 0;
  while (kind + 1 < kKinds.size() && !kKinds.at(kind).is(error)) {
    ++kind;
  }
  return static_cast<char>(kFirstKind + kind) + printable(error.what());
}

}  // namespace

std::vector<std::string> agree_on(comm::World& world, const std::function<std::string()>& action) {
  if (world.size() == 1) {
    return {action()};
  }
  std::string report;
  try {
    report = kDone + action();
  } catch (const std::exception& error) {
    report = report_of(error);
  } catch (...) {
    // Of the user's code; the others must not wait for this rank.
    report = report_of(Error("what was thrown is no std::exception"));
  }
  std::vector<std::string> texts = world.exchange(report);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const char kind = texts[rank].front();
    if (kind != kDone) {
      kKinds.at(static_cast<std::size_t>(kind - kFirstKind))
          .raise(fmt::format("rank {}: {}", rank, texts[rank].substr(1)));
    }
    texts[rank].erase(0, 1);
  }
  return texts;
}

}  // namespace fsdptrain::checkpoint
