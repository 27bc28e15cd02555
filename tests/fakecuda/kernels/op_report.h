#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/kernels/launch_accesses.h"

namespace fsdptrain::fakecuda {

// "text: byte 4 of cudaMalloc #2 (1024 bytes, device 0)", of the operation that runs.
void report_of_op(ReportKind kind, const std::string& text, std::uintptr_t address);

// Reports the first byte of memory of the machine that the running operation touched without
// having declared it; `verb` says how.
void report_undeclared(const std::string& name, const char* verb,
                       const std::vector<LaunchAccesses::Bytes>& touched,
                       const std::vector<Range>& declared);

}  // namespace fsdptrain::fakecuda
