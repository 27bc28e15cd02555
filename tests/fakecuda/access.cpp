#include <algorithm>
#include <fmt/format.h>

#include "tests/fakecuda/machine.h"

// What operations and the host may touch, and in which order.
namespace fsdptrain::fakecuda {
namespace {

std::string described(const Accessor& accessor) {
  return fmt::format("'{}' ({})", accessor.name, accessor.place);
}

const char* verb(bool is_write) {
  return is_write ? "write" : "read";
}

}  // namespace

void Machine::report(ReportKind kind, std::string text, std::vector<Place> places) {
  reports.push_back({.kind = kind, .text = std::move(text), .places = std::move(places)});
}

void Machine::report(ReportKind kind, std::string text, const Call& call) {
  report(kind, std::move(text), std::vector{Place{.what = "called", .site = call.site}});
}

void Machine::report_conflict(std::uint32_t accessor, bool is_write, std::uint32_t earlier,
                              bool earlier_wrote, const Allocation& allocation,
                              std::size_t offset) {
  if (!is_new({ReportKind::UnorderedAccess, accessor, earlier, allocation.begin})) {
    return;
  }
  const Accessor& later = accessors[accessor];
  const Accessor& first = accessors[earlier];
  report(ReportKind::UnorderedAccess,
         fmt::format("the {} by {} is not ordered after the {} by {}: byte {} of {}",
                     verb(is_write), described(later), verb(earlier_wrote), described(first),
                     offset, to_string(allocation)),
         {{fmt::format("the {}", verb(is_write)), later.site},
          {fmt::format("the earlier {}", verb(earlier_wrote)), first.site}});
}

bool Machine::check_access(const Range& range, bool is_write, std::uint32_t accessor) {
  if (range.nbytes == 0) {
    return true;
  }
  const auto begin = reinterpret_cast<Address>(range.data);
  const Accessor& who = accessors[accessor];
  const auto found = [&](ReportKind kind, const Allocation* allocation, std::string text) {
    const std::uint64_t where = allocation != nullptr ? allocation->begin : begin;
    if (is_new({kind, accessor, 0, where})) {
      std::vector<Place> places = {{fmt::format("the {}", verb(is_write)), who.site}};
      if (allocation != nullptr) {
        places.push_back({"allocated", allocation->site});
        if (allocation->freed) {
          places.push_back({"freed", *allocation->freed});
        }
      }
      report(kind, fmt::format("{} by {}: {}", verb(is_write), described(who), text),
             std::move(places));
    }
    return false;
  };
  Allocation* allocation = memory.find(begin);
  if (allocation == nullptr) {
    return memory.is_ours(begin)
               ? found(ReportKind::OutOfBounds, nullptr, "far from all allocations")
               : found(ReportKind::InvalidUse, nullptr, "neither device nor pinned memory");
  }
  const auto offset = static_cast<std::ptrdiff_t>(begin - allocation->begin);
  const std::string where = to_string(*allocation);
  if (allocation->freed) {
    found(ReportKind::UseAfterFree, allocation,
          fmt::format("byte {} of {}, which was freed", offset, where));
    return false;
  }
  if (begin < allocation->begin || range.nbytes > allocation->end() - begin) {
    return found(ReportKind::OutOfBounds, allocation,
                 fmt::format("{} bytes from byte {} of {}", range.nbytes, offset, where));
  }
  const Shadow::Visitor visitor{
      .is_ordered =
          [&](std::uint32_t earlier) {
            return accessors[earlier].tick <= who.clock.at(accessors[earlier].component);
          },
      .conflict =
          [&](std::uint32_t earlier, bool earlier_wrote, std::size_t at) {
            report_conflict(accessor, is_write, earlier, earlier_wrote, *allocation, at);
          },
      .uninitialised =
          [&](std::size_t at) {
            found(ReportKind::UninitialisedRead, allocation,
                  fmt::format("byte {} of {} was never written", at, where));
          },
      .unowned =
          [&](std::size_t at) {
            found(ReportKind::OutOfBounds, allocation,
                  fmt::format("byte {} of {} belongs to nobody: it lies behind what was asked for, "
                              "or was given back",
                              at, where));
          }};
  if (is_write) {
    allocation->shadow.write(static_cast<std::size_t>(offset), range.nbytes, accessor, visitor);
  } else {
    allocation->shadow.read(static_cast<std::size_t>(offset), range.nbytes, accessor, visitor);
  }
  return true;
}

bool Machine::check_ranges(const std::vector<Range>& reads, const std::vector<Range>& writes,
                           std::uint32_t accessor) {
  bool valid = true;
  for (const Range& range : reads) {
    valid = check_access(range, false, accessor) && valid;
  }
  for (const Range& range : writes) {
    valid = check_access(range, true, accessor) && valid;
  }
  return valid;
}

std::uint32_t Machine::add_host_accessor(const Call& call, std::string name) {
  Host& host = call.host;
  accessors.push_back({.name = std::move(name),
                       .place = host.name,
                       .component = host.component,
                       .tick = host.clock.at(host.component),
                       .clock = host.clock,
                       .site = call.site});
  return static_cast<std::uint32_t>(accessors.size() - 1);
}

void Machine::check_free(Allocation& allocation, const Clock& known, const Call& call) {
  const auto in_use = [&](std::uint32_t number, bool is_write) {
    const Accessor& user = accessors[number];
    if (is_new({ReportKind::FreeWhileInUse, number, 0, allocation.begin})) {
      report(
          ReportKind::FreeWhileInUse,
          fmt::format("{} of {}, which the {} by {} may touch: {} does not wait for it", call.name,
                      to_string(allocation), verb(is_write), described(user), call.host.name),
          {{"freed", call.site}, {fmt::format("the {}", verb(is_write)), user.site}});
    }
  };
  const auto touches = [&](const std::vector<Range>& ranges) {
    return std::ranges::any_of(ranges, [&](const Range& range) {
      const auto begin = reinterpret_cast<Address>(range.data);
      return begin < allocation.end() && begin + range.nbytes > allocation.begin;
    });
  };
  for (const Stream& stream : streams) {
    for (const Op& op : stream.queue) {
      bool writes = touches(op.spec.writes);
      bool reads = touches(op.spec.reads);
      for (const Part& part : op.spec.parts) {
        writes = writes || touches(part.writes);
        reads = reads || touches(part.reads);
      }
      if (writes || reads) {
        in_use(op.number, writes);
      }
    }
  }
  allocation.shadow.check_all(
      {.is_ordered =
           [&](std::uint32_t earlier) {
             return accessors[earlier].tick <= known.at(accessors[earlier].component);
           },
       .conflict = [&](std::uint32_t earlier, bool wrote, std::size_t) { in_use(earlier, wrote); },
       .uninitialised = {}});
}

}  // namespace fsdptrain::fakecuda
