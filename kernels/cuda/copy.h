#pragma once

#include "kernels/copy.h"

namespace fsdptrain::kernels::cuda {

void copy(void* stream, const View& out, const View& in);
void accumulate(void* stream, const View& out, const View& in);
void fill(void* stream, const View& out, double value);

}  // namespace fsdptrain::kernels::cuda
