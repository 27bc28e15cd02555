#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load/reader.h"
#include "runtime/base/dtype.h"

namespace fsdptrain::checkpoint {

struct ExportOptions {
  // Of which tensors without it are left out: those that are frozen have parameters alone, and are
  // then taken from there.
  std::string plane = kParameters;
  // What floating values are rounded to; none: as they are.
  std::optional<DType> dtype = {};
  // Of values in one file, but for a tensor that is larger; none: one file for all.
  std::optional<std::uint64_t> max_file_nbytes = {};
  // For the header of each file.
  std::map<std::string, std::string> metadata = {};
};

struct Exported {
  // An index last where there are several files.
  std::vector<std::filesystem::path> files;
  std::uint64_t nbytes = 0;
};

// Bytes that an export reads. ConfigError as below.
std::uint64_t export_nbytes(const CheckpointReader& source, const ExportOptions& options);

// One plane of all tensors as plain safetensors with the model's names. `output` is a file, which
// is replaced if it is there; with max_file_nbytes a folder, made where it is missing, of files
// "model-00001-of-00003.safetensors" and "model.safetensors.index.json", in the form of Hugging
// Face's. Holds the largest tensor, and what it is cast to beside it. ConfigError for a plane that
// no group has. A file appears when it is whole; the index, by which the others are found, last.
// `each` gets the bytes that were read.
Exported export_model(CheckpointReader& source, const std::filesystem::path& output,
                      const ExportOptions& options,
                      const std::function<void(std::uint64_t nbytes)>& each);

}  // namespace fsdptrain::checkpoint
