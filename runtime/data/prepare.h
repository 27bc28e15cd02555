#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "runtime/data/text_files.h"

// Texts become files of byte tokens (byte_text.h).
namespace fsdptrain::data {

struct PrepareOptions {
  // Folders that are missing on the way are made.
  std::filesystem::path output;
  // Of the files; 0: one file (TokenWriter).
  std::uint64_t shard_tokens = 0;
  // The documents of which is_validation() says so go to validation_path(output).
  double validation_fraction = 0;
  std::uint64_t seed = 0;
  // Of a line of JSONL.
  std::string jsonl_field = "text";
};

struct PreparedSet {
  std::vector<std::filesystem::path> files;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;
};

struct Prepared {
  PreparedSet training;
  std::optional<PreparedSet> validation;
};

// Whether a document, counted from 0 over all texts, is for validation: a keyed hash of its number
// is below the fraction.
bool is_validation(std::uint64_t seed, std::uint64_t document, double fraction);

// FOLDER/validation/NAME for FOLDER/NAME: a folder of shards holds none of the other set.
std::filesystem::path validation_path(const std::filesystem::path& output);

// Writes the texts in their order, the same bytes for any number of threads. Each thread holds a
// block of 1 MiB, or the longest line of JSONL where that is longer. Nothing appears before all is
// written, and then the validation set first; nothing stays after an error, neither a file of
// either set nor a folder made for them. DataError, with file
// and line, for what is wrong with the texts, or if a set would be empty; ConfigError for a
// fraction outside [0, 1). `progress` is told the bytes done, in order; it may throw to stop.
Prepared prepare_bytes(const std::vector<TextFile>& texts, const PrepareOptions& options,
                       ThreadPool& pool, const std::function<void(std::uint64_t)>& progress = {});

}  // namespace fsdptrain::data
