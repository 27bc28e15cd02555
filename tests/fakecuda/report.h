#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace fsdptrain::fakecuda {

enum class ReportKind {
  // Two operations, or one and the host, touch the same bytes, one of them writes, and no wait
  // orders them.
  UnorderedAccess,
  UseAfterFree,
  // Bytes beside an allocation, from the first one on.
  OutOfBounds,
  UninitialisedRead,
  // The host touches device memory.
  HostAccess,
  // Memory is freed while an operation that nobody waited for may touch it.
  FreeWhileInUse,
  DoubleFree,
  // A stream that was destroyed, twice destroyed, or is no stream.
  StreamMisuse,
  EventMisuse,
  // Asynchronous work on stream 0, which waits for nobody here.
  LegacyStream,
  // A pointer, direction or call that CUDA forbids.
  InvalidUse,
  // No host thread and no operation can run.
  Hang,
  // Ranks do not call the same collectives in the same order.
  CollectiveMismatch,
  // Memory, streams or events that are left at the end of a session.
  Leak,
};

const char* to_string(ReportKind kind);

// The return addresses of one call, innermost first; names are looked up only when asked for.
struct CallSite {
  static constexpr std::size_t kMaxFrames = 24;
  std::array<void*, kMaxFrames> frames = {};
  std::size_t num_frames = 0;

  static CallSite here();
};

// "tests/comm/x_test.cpp:31": the first frame that belongs neither to the fake nor to what calls
// CUDA for others (runtime/base, kernels, comm/nccl).
std::string to_string(const CallSite& site);

// "the write" and where it was called.
struct Place {
  std::string what = {};
  CallSite site = {};
};

// One finding. `text` has everything but the lines in the source, which cost a lookup.
struct Report {
  ReportKind kind = ReportKind::InvalidUse;
  std::string text;
  std::vector<Place> places = {};
};

// "kind: text", and a line for each place.
std::string describe(const Report& report);

}  // namespace fsdptrain::fakecuda
