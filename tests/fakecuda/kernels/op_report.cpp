#include "tests/fakecuda/kernels/op_report.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>

#include "tests/fakecuda/machine.h"

namespace fsdptrain::fakecuda {
namespace {

std::uintptr_t address_of(const Range& range) {
  return reinterpret_cast<std::uintptr_t>(range.data);
}

// The first byte of `bytes` that no range covers, or its end. `sorted` is by address.
std::uintptr_t first_uncovered(const LaunchAccesses::Bytes& bytes,
                               const std::vector<Range>& sorted) {
  std::uintptr_t at = bytes.begin;
  for (const Range& range : sorted) {
    if (address_of(range) <= at) {
      at = std::max(at, address_of(range) + range.nbytes);
    }
  }
  return std::min(at, bytes.begin + bytes.nbytes);
}

}  // namespace

void report_of_op(ReportKind kind, const std::string& text, std::uintptr_t address) {
  Machine& here = *machine();
  const std::lock_guard lock(here.access_mutex);
  const Allocation* const found = here.memory.find(address);
  const std::string where =
      found == nullptr
          ? "memory of the host"
          : fmt::format("byte {} of {}", static_cast<std::ptrdiff_t>(address - found->begin),
                        to_string(*found));
  here.report(kind, fmt::format("{}: {}", text, where),
              {{"launched", here.accessors[here.running_op].site}});
}

void report_undeclared(const std::string& name, const char* verb,
                       const std::vector<LaunchAccesses::Bytes>& touched,
                       const std::vector<Range>& declared) {
  std::vector<Range> sorted = declared;
  std::ranges::sort(sorted, {}, address_of);
  for (const LaunchAccesses::Bytes& bytes : touched) {
    const std::uintptr_t address = first_uncovered(bytes, sorted);
    // Workspace is the operation's own.
    if (address < bytes.begin + bytes.nbytes && machine()->memory.is_ours(address)) {
      report_of_op(ReportKind::InvalidUse,
                   fmt::format("'{}' {} what it does not declare", name, verb), address);
      return;
    }
  }
}

}  // namespace fsdptrain::fakecuda
