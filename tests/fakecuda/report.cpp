#include "tests/fakecuda/report.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <map>
#include <memory>
#include <string_view>
#include <unistd.h>

#include "runtime/base/error.h"

namespace fsdptrain::fakecuda {
namespace {

// A line of the source, of the function around it or of one that was inlined there.
struct Line {
  std::string file;
  std::string text;
};

std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* result) {
        *static_cast<std::uintptr_t*>(result) = program->dlpi_addr;
        return 1;
      },
      &address);
  return address;
}

// "tests/x.cpp" of "/somewhere/fsdptrain/tests/x.cpp" and of "/build/cpu/../../tests/x.cpp".
std::string from_top_folder(const std::string& file) {
  constexpr std::string_view kParent = "/../";
  const std::size_t parent = file.rfind(kParent);
  if (parent != std::string::npos) {
    return file.substr(parent + kParent.size());
  }
  const std::string text = to_string(SourceLocation{.file = file.c_str(), .line = 0});
  return text.substr(0, text.rfind(':'));
}

// All lines behind one address, innermost first, as binutils know them.
std::vector<Line> look_up(const void* frame) {
  std::array<char, 4096> program = {};
  if (readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0) {
    return {};
  }
  // Minus one: the call, not what follows it.
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(frame) - load_address() - 1;
  const std::string command =
      fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", program.data(), address);
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): closed by the deleter.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<Line> lines;
  std::array<char, 4096> buffer = {};
  while (pipe && std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe.get())) {
    std::string text = buffer.data();
    text = text.substr(0, text.find_first_of(" \n"));
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos || text.starts_with("??")) {
      continue;
    }
    const std::string file = from_top_folder(text.substr(0, colon));
    lines.push_back({.file = file, .text = file + text.substr(colon)});
  }
  return lines;
}

const std::vector<Line>& lines_of(const void* frame) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a cache of a lookup.
  static thread_local std::map<const void*, std::vector<Line>> known;
  const auto found = known.find(frame);
  return found != known.end() ? found->second : known.emplace(frame, look_up(frame)).first->second;
}

// Whether a reader knows anyway that the call comes through here.
bool is_below_caller(std::string_view file) {
  if (file.ends_with("_test.cpp")) {
    return false;
  }
  // What is absolute, or below an include folder, is of the system.
  return file.starts_with("/") || file.starts_with("include/") ||
         file.starts_with("tests/fakecuda/") || file.starts_with("runtime/base/") ||
         file.starts_with("kernels/") || file.starts_with("comm/nccl/");
}

}  // namespace

const char* to_string(ReportKind kind) {
  switch (kind) {
    case ReportKind::UnorderedAccess:
      return "unordered access";
    case ReportKind::UseAfterFree:
      return "use after free";
    case ReportKind::OutOfBounds:
      return "out of bounds";
    case ReportKind::UninitialisedRead:
      return "uninitialised read";
    case ReportKind::HostAccess:
      return "host access to device memory";
    case ReportKind::FreeWhileInUse:
      return "free while in use";
    case ReportKind::DoubleFree:
      return "double free";
    case ReportKind::StreamMisuse:
      return "stream misuse";
    case ReportKind::EventMisuse:
      return "event misuse";
    case ReportKind::LegacyStream:
      return "legacy stream";
    case ReportKind::InvalidUse:
      return "invalid use";
    case ReportKind::Hang:
      return "hang";
    case ReportKind::CollectiveMismatch:
      return "collective mismatch";
    case ReportKind::Leak:
      return "leak";
  }
  fail("report of no kind");
}

CallSite CallSite::here() {
  CallSite site;
  const int num_frames = backtrace(site.frames.data(), static_cast<int>(kMaxFrames));
  site.num_frames = static_cast<std::size_t>(num_frames);
  return site;
}

std::string to_string(const CallSite& site) {
  for (std::size_t i = 0; i < site.num_frames; ++i) {
    for (const Line& line : lines_of(site.frames.at(i))) {
      if (!is_below_caller(line.file)) {
        return line.text;
      }
    }
  }
  return "a place without debug information";
}

std::string describe(const Report& report) {
  std::string text = fmt::format("{}: {}", to_string(report.kind), report.text);
  for (const Place& place : report.places) {
    text += fmt::format("\n  {} at {}", place.what, to_string(place.site));
  }
  return text;
}

}  // namespace fsdptrain::fakecuda
