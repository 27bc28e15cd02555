#include "tests/fakecuda/shadow.h"

#include <algorithm>
#include <iterator>

namespace fsdptrain::fakecuda {

Shadow::Shadow(std::size_t nbytes, bool initialised) {
  intervals_[0] = {
      .end = nbytes, .writer = 0, .readers = {}, .initialised = initialised, .unowned = false};
}

// The interval that begins at `offset`, cut from the one around it if need be; the end if there are
// no bytes from there on.
Shadow::Intervals::iterator Shadow::cut(std::size_t offset) {
  const auto next = intervals_.lower_bound(offset);
  if (next != intervals_.end() && next->first == offset) {
    return next;
  }
  Interval& around = std::prev(next)->second;
  if (around.end <= offset) {
    return next;
  }
  Interval rest = around;
  around.end = offset;
  return intervals_.emplace_hint(next, offset, std::move(rest));
}

void Shadow::merge(std::size_t begin, std::size_t end) {
  auto interval = intervals_.find(begin);
  if (interval != intervals_.begin()) {
    --interval;
  }
  while (true) {
    const auto next = std::next(interval);
    if (next == intervals_.end() || interval->first > end) {
      return;
    }
    if (interval->second.agrees_with(next->second)) {
      interval->second.end = next->second.end;
      intervals_.erase(next);
    } else {
      interval = next;
    }
  }
}

void Shadow::read(std::size_t offset, std::size_t nbytes, std::uint32_t op,
                  const Visitor& visitor) {
  if (nbytes == 0) {
    return;
  }
  const auto around = std::prev(intervals_.upper_bound(offset));
  if (around->second.end >= offset + nbytes && around->second.initialised &&
      std::ranges::find(around->second.readers, op) != around->second.readers.end()) {
    return;
  }
  const auto last = cut(offset + nbytes);
  for (auto it = cut(offset); it != last; ++it) {
    Interval& bytes = it->second;
    if (bytes.unowned) {
      visitor.unowned(it->first);
    } else if (!bytes.initialised) {
      visitor.uninitialised(it->first);
    }
    if (bytes.writer != 0 && bytes.writer != op && !visitor.is_ordered(bytes.writer)) {
      visitor.conflict(bytes.writer, true, it->first);
    }
    std::erase_if(bytes.readers,
                  [&](std::uint32_t reader) { return reader == op || visitor.is_ordered(reader); });
    bytes.readers.push_back(op);
  }
  merge(offset, offset + nbytes);
}

void Shadow::write(std::size_t offset, std::size_t nbytes, std::uint32_t op,
                   const Visitor& visitor) {
  if (nbytes == 0) {
    return;
  }
  const auto around = std::prev(intervals_.upper_bound(offset));
  if (around->second.end >= offset + nbytes && around->second.writer == op &&
      around->second.readers.empty()) {
    return;
  }
  const auto last = cut(offset + nbytes);
  for (auto it = cut(offset); it != last; ++it) {
    if (it->second.unowned) {
      visitor.unowned(it->first);
    }
    write_after(it, op, visitor);
    it->second.initialised = true;
  }
  merge(offset, offset + nbytes);
}

void Shadow::write_after(Intervals::iterator at, std::uint32_t op, const Visitor& visitor) {
  Interval& bytes = at->second;
  if (bytes.writer != 0 && bytes.writer != op && !visitor.is_ordered(bytes.writer)) {
    visitor.conflict(bytes.writer, true, at->first);
  }
  for (const std::uint32_t reader : bytes.readers) {
    if (reader != op && !visitor.is_ordered(reader)) {
      visitor.conflict(reader, false, at->first);
    }
  }
  bytes.readers.clear();
  bytes.writer = op;
}

void Shadow::mark(std::size_t offset, std::size_t nbytes, std::size_t in_use, std::uint32_t op,
                  const Visitor& visitor) {
  cut(offset + in_use);
  const auto last = cut(offset + nbytes);
  for (auto it = cut(offset); it != last; ++it) {
    write_after(it, op, visitor);
    it->second.initialised = false;
    it->second.unowned = it->first >= offset + in_use;
  }
  merge(offset, offset + nbytes);
}

void Shadow::check_all(const Visitor& visitor) const {
  for (const auto& [begin, bytes] : intervals_) {
    if (bytes.writer != 0 && !visitor.is_ordered(bytes.writer)) {
      visitor.conflict(bytes.writer, true, begin);
    }
    for (const std::uint32_t reader : bytes.readers) {
      if (!visitor.is_ordered(reader)) {
        visitor.conflict(reader, false, begin);
      }
    }
  }
}

}  // namespace fsdptrain::fakecuda
