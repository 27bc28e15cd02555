#include "checkpoint/folder/retention.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/scan.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {

std::vector<std::int64_t> steps_to_remove(std::span<const std::int64_t> valid,
                                          const Retention& retention) {
  if (retention.newest) {
    valid = valid.subspan(static_cast<std::size_t>(
        std::ranges::count_if(valid, [&](std::int64_t step) { return step > *retention.newest; })));
  }
  const auto num_kept = std::min(
      static_cast<std::size_t>(std::max<std::int64_t>(retention.keep_last, 0)), valid.size());
  if (num_kept == 0) {
    return {};
  }
  std::vector<std::int64_t> removed;
  std::ranges::copy_if(valid.subspan(num_kept), std::back_inserter(removed),
                       [&](std::int64_t step) { return !retention.keep_steps.contains(step); });
  return removed;
}

std::vector<std::string> remove_old(FileSystem& files, const std::filesystem::path& folder,
                                    const Retention& retention) {
  std::vector<std::string> problems;
  if (retention.keep_last == 0) {
    return problems;
  }
  const auto try_to = [&problems](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  try_to([&] {
    for (const std::int64_t step : steps_to_remove(scan(files, folder).valid, retention)) {
      try_to([&] { remove_checkpoint(files, folder, step, make_attempt()); });
    }
  });
  return problems;
}

void remove_checkpoint(FileSystem& files, const std::filesystem::path& folder, std::int64_t step,
                       const std::string& attempt) {
  files.make_folder(folder / kTrashFolder);
  const std::string name = step_folder_name(step);
  const std::filesystem::path trashed = folder / kTrashFolder / fmt::format("{}.{}", name, attempt);
  files.rename(folder / name, trashed);
  remove_all(files, trashed);
}

}  // namespace fsdptrain::checkpoint
