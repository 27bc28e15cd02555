#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "runtime/base/allocator.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "tools/config/config.h"

// What a configuration builds, and what a step of its training takes.
namespace fsdptrain::tools {

// Parameters that differ in nothing but the block they are in.
struct ParameterRow {
  std::string name;  // "h.{0-11}.ln_1.weight" where there are several
  std::int64_t count = 1;
  Shape shape;  // of one
  DType dtype = DType::Float32;
  bool trained = true;
  bool decay = true;
  double lr_scale = 1;

  std::int64_t num_parameters() const { return count * shape.numel(); }
};

// The parameters of the model that `config` says, under its rules, in the order of the model;
// `folded`: blocks that are alike are one row.
std::vector<ParameterRow> parameter_rows(const Config& config, bool folded);

// What the allocator of the ranks' device counts on this one in a training step from the second on,
// with the threads and the instruction set variant of the bound context. On meta, the same without
// memory. Collective.
MemoryCounters step_memory(const Config& config, comm::ProcessGroup& ranks);

}  // namespace fsdptrain::tools
