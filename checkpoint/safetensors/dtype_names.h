#pragma once

#include <optional>
#include <string_view>

#include "runtime/base/dtype.h"

// What safetensors files, and manifests after them, call dtypes.
namespace fsdptrain::checkpoint {

std::string_view safetensors_name_of(DType dtype);
// The other way round; none for what the format does not have, or this project.
std::optional<DType> dtype_of_safetensors(std::string_view name);

}  // namespace fsdptrain::checkpoint
