#pragma once

namespace fsdptrain::tools {

// The median seconds of a parallel region in which every thread of the bound rank context has one
// task, and the task does nothing.
double measure_pool_region();

}  // namespace fsdptrain::tools
