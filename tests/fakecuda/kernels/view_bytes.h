#pragma once

#include <vector>

#include "kernels/operands.h"
#include "tests/fakecuda/fakecuda.h"

namespace fsdptrain::fakecuda {

// The bytes of the operands: exactly those of their elements, in as few ranges as their layout
// allows.
std::vector<Range> bytes_of(std::initializer_list<kernels::Operand> operands);

}  // namespace fsdptrain::fakecuda
