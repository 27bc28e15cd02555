#include "tools/bench/checkpoint_work.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <unistd.h>

#include "checkpoint/convert/verify.h"
#include "checkpoint/folder/names.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/save/rank_file.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/stopwatch.h"

namespace fsdptrain::tools {
namespace {

constexpr std::size_t kWriteBytes = std::size_t{8} << 20;

template <class Action>
double time_of(const Action& action) {
  const Stopwatch stopwatch;
  action();
  return stopwatch.seconds();
}

checkpoint::TrainingState state_of(TrainingRank& rank) {
  return {.model = &rank.sharded(), .optimizer = &rank.optimizer()};
}

std::int64_t largest_tensor_of(const shard::ShardedModel& model) {
  std::int64_t largest = 0;
  for (const shard::ParameterPart& part : shard::parts_of(model)) {
    largest =
        std::max(largest, part.shape.numel() * static_cast<std::int64_t>(size_of(part.dtype())));
  }
  return largest;
}

// All of a file, into `out`, which it fills again from its beginning where it is shorter.
void read_all(const File& file, std::span<std::byte> out) {
  const std::uint64_t size = file.size();
  std::uint64_t at = 0;
  while (at < size) {
    const std::size_t begin = static_cast<std::size_t>(at % out.size());
    const auto nbytes =
        std::min<std::uint64_t>({checkpoint::kBlockBytes, size - at, out.size() - begin});
    check<IoError>(file.read_at(at, out.subspan(begin, static_cast<std::size_t>(nbytes))) == nbytes,
                   "{}: became shorter", file.path().string());
    at += nbytes;
  }
}

}  // namespace

CheckpointWork::CheckpointWork(const Config& config, const std::filesystem::path& folder)
    : rank_(config, alone_.world().group()),
      files_(checkpoint::make_real_file_system()),
      folder_(folder / fmt::format("fsdptrain-bench-checkpoint-{}", ::getpid())),
      nbytes_(checkpoint::staging_nbytes_of(state_of(rank_))),
      largest_(largest_tensor_of(rank_.sharded())),
      roof_(2 * static_cast<double>(nbytes_)),
      destination_(
          std::max(static_cast<std::size_t>(nbytes_), std::size_t{checkpoint::kBlockBytes}),
          std::byte{1}) {
  const auto make = [this](bool async, const char* name) {
    return std::make_unique<checkpoint::Saver>(
        *files_, alone_.world(), state_of(rank_),
        checkpoint::Saver::Options{.folder = folder_ / name, .async = async, .keep_last = 1});
  };
  make_folders(folder_);
  foreground_ = make(false, "foreground");
  background_ = make(true, "background");
}

CheckpointWork::~CheckpointWork() {
  foreground_.reset();
  background_.reset();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

std::filesystem::path CheckpointWork::checkpoint() const {
  return folder_ / "foreground" / checkpoint::step_folder_name(step_);
}

std::filesystem::path CheckpointWork::file() const {
  return checkpoint() / checkpoint::rank_file_name(0);
}

double CheckpointWork::write() {
  const std::filesystem::path path = folder_ / "plain";
  const double seconds = time_of([&] {
    std::optional<File> file = File::create(path);
    std::uint64_t at = 0;
    for (std::span<const std::byte> rest =
             std::span(destination_).first(static_cast<std::size_t>(nbytes_));
         !rest.empty();) {
      const std::span<const std::byte> part = rest.first(std::min(kWriteBytes, rest.size()));
      file->write_at(at, part);
      file->begin_sync(at, part.size());
      at += part.size();
      rest = rest.subspan(part.size());
    }
    file->sync();
    file->close();
  });
  std::filesystem::remove(path);
  return seconds;
}

double CheckpointWork::save() {
  return time_of([this] { foreground_->save_and_wait(++step_); });
}

double CheckpointWork::copy() {
  return time_of([this] { roof_.run(); });
}

double CheckpointWork::stall() {
  const double seconds = time_of([this] { background_->save(step_ + 1); });
  background_->finish();
  return seconds;
}

double CheckpointWork::read() {
  const File file = File::open_for_reading(this->file());
  return time_of([&] { read_all(file, destination_); });
}

double CheckpointWork::read_through() {
  const File file = File::open_for_reading(this->file());
  const std::span<std::byte> block = std::span(destination_).first(checkpoint::kBlockBytes);
  return time_of([&] { read_all(file, block); });
}

double CheckpointWork::load() {
  return time_of([this] {
    checkpoint::load_checkpoint(*files_, alone_.world(), state_of(rank_), checkpoint());
  });
}

double CheckpointWork::verify() {
  return time_of([this] {
    const auto problems = checkpoint::verify(*files_, checkpoint::look_at(*files_, checkpoint()),
                                             [](std::uint64_t /*nbytes*/) {});
    check<DataError>(problems.empty(), "{}", problems.empty() ? "" : problems.front());
  });
}

}  // namespace fsdptrain::tools
