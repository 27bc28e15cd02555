#include "checkpoint/save/rank_file.h"

#include <algorithm>
#include <fmt/format.h>

#include "checkpoint/folder/names.h"

namespace fsdptrain::checkpoint {
namespace {

constexpr std::size_t kStretchBytes = std::size_t{8} << 20;

}  // namespace

std::string rank_file_name(std::int64_t file) {
  return fmt::format("{}{:05}.safetensors", kRankFilePrefix, file);
}

FileFacts write_rank_file(FileSystem& files, const RankFile& file,
                          const std::function<void()>& check_goes_on) {
  BlockFileWriter writer(files, file.path, file.metadata, file.specs);
  for (std::span<const std::byte> rest : file.values) {
    while (!rest.empty()) {
      check_goes_on();
      const std::size_t nbytes = std::min(rest.size(), kStretchBytes);
      writer.append(rest.first(nbytes));
      rest = rest.subspan(nbytes);
    }
  }
  check_goes_on();
  return writer.finish();
}

}  // namespace fsdptrain::checkpoint
