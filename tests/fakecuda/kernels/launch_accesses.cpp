#include "tests/fakecuda/kernels/launch_accesses.h"

namespace fsdptrain::fakecuda {

void LaunchAccesses::access(const void* data, std::size_t nbytes, bool is_write,
                            std::uint32_t thread) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t address = begin; address < begin + nbytes; ++address) {
    Cell& cell = page_of(address)[address % kPage];
    if (is_write) {
      write_byte(cell, address, thread);
    } else {
      read_byte(cell, address, thread);
    }
  }
}

LaunchAccesses::Page& LaunchAccesses::page_of(std::uintptr_t address) {
  const std::uintptr_t begin = address - address % kPage;
  Recent& recent = recent_[begin / kPage % recent_.size()];
  if (recent.begin != begin || recent.page == nullptr) {
    recent = {begin, &pages_[begin]};
  }
  return *recent.page;
}

void LaunchAccesses::read_byte(Cell& cell, std::uintptr_t address, std::uint32_t thread) {
  if (cell.writer == kNobody) {
    const bool is_first = cell.reader == kNobody || cell.reader == thread;
    cell.reader = is_first ? thread : kManyThreads;
  } else if (cell.writer != thread) {
    found({address, cell.writer, true, thread, false});
  }
}

void LaunchAccesses::write_byte(Cell& cell, std::uintptr_t address, std::uint32_t thread) {
  if (cell.writer != kNobody && cell.writer != thread) {
    found({address, cell.writer, true, thread, true});
  } else if (cell.reader != kNobody && cell.reader != thread) {
    found({address, cell.reader, false, thread, true});
  }
  cell.writer = thread;
}

void LaunchAccesses::found(const Race& race) {
  if (!race_) {
    race_ = race;
  }
}

template <class Touched>
std::vector<LaunchAccesses::Bytes> LaunchAccesses::ranges(Touched touched) const {
  std::vector<Bytes> result;
  for (const auto& [begin, page] : pages_) {
    for (std::uintptr_t i = 0; i < kPage; ++i) {
      if (!touched(page[i])) {
        continue;
      }
      if (result.empty() || result.back().begin + result.back().nbytes != begin + i) {
        result.push_back({begin + i, 0});
      }
      ++result.back().nbytes;
    }
  }
  return result;
}

std::vector<LaunchAccesses::Bytes> LaunchAccesses::read() const {
  return ranges([](const Cell& cell) { return cell.reader != kNobody; });
}

std::vector<LaunchAccesses::Bytes> LaunchAccesses::written() const {
  return ranges([](const Cell& cell) { return cell.writer != kNobody; });
}

}  // namespace fsdptrain::fakecuda
