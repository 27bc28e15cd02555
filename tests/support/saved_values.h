#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/folder/names.h"
#include "checkpoint/load/reader.h"
#include "tests/support/checkpoint_run.h"

namespace fsdptrain::testing {

// Of a checkpoint, as all_state_of() has them.
inline Values saved_values(checkpoint::FileSystem& files, const std::filesystem::path& folder,
                           std::int64_t step) {
  using checkpoint::CheckpointReader;
  CheckpointReader reader =
      CheckpointReader::open(files, folder / checkpoint::step_folder_name(step));
  Values values;
  for (const auto& tensor : reader.manifest().layout.tensors) {
    for (const auto& plane :
         reader.manifest().layout.groups[static_cast<std::size_t>(tensor.group)].planes) {
      const Tensor whole = Tensor::empty(tensor.shape, plane.dtype);
      const CheckpointReader::Want want{.tensor = &tensor,
                                        .plane = plane.name,
                                        .elements = {0, tensor.shape.numel()},
                                        .out = whole.mutable_bytes()};
      reader.read({&want, 1});
      values[plane.name + " " + tensor.name] = whole.to_vector();
    }
  }
  values["progress"] = {reader.manifest().objects.at("progress").values.front().get<double>()};
  return values;
}

}  // namespace fsdptrain::testing
