#include "runtime/data/prepare.h"

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/data/byte_block.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/token_writer.h"

namespace fsdptrain::data {
namespace {

namespace fs = std::filesystem;

// Keeps the choice apart from all other uses of a seed.
constexpr std::uint64_t kPurpose = 0x76616c6964;  // "valid"

// A folder, and those it is in, that exist for its lifetime, and longer if something is in them or
// they were there before.
class FolderForOutput {
 public:
  explicit FolderForOutput(const fs::path& folder) : made_(make_folders(folder)) {}
  FolderForOutput(const FolderForOutput&) = delete;
  FolderForOutput& operator=(const FolderForOutput&) = delete;
  ~FolderForOutput() {
    for (; !made_.empty(); made_.pop_back()) {
      const fs::path& path = made_.back();
      std::error_code error;
      if (fs::is_empty(path, error) && !error && !fs::remove(path, error)) {
        log_warning("{}: removing the empty folder failed: {}", path.native(), error.message());
      }
    }
  }

 private:
  // The outer before the inner.
  std::vector<fs::path> made_;
};

// Before any work where the texts alone tell: lines of JSONL may hold less than their bytes.
void check_num_shards(const std::vector<TextFile>& texts, const PrepareOptions& options) {
  std::uint64_t num_tokens = 0;
  for (const TextFile& text : texts) {
    num_tokens += text.format == TextFormat::Text ? text.nbytes - text.begin + 1 : 0;
  }
  const std::uint64_t limit = kLargestShards * (options.validation_fraction > 0 ? 2 : 1);
  const std::uint64_t least = (num_tokens + limit - 1) / limit;
  check<ConfigError>(options.shard_tokens == 0 || options.shard_tokens >= least,
                     "{}: {} tokens are more than {} shards of {} tokens: choose at least {} "
                     "(--shard-tokens)",
                     options.output.native(), num_tokens, limit, options.shard_tokens, least);
}

// The two sets under way: threads convert blocks at the same time, take turns, in the order of the
// blocks, to find places for them, and write at the same time.
class Preparation {
 public:
  Preparation(const ByteBlocks& blocks, const PrepareOptions& options, int threads,
              const std::function<void(std::uint64_t)>& progress);

  // Of a pool; errors end the work and are kept.
  static void run_block(void* preparation, std::int64_t block, int thread) {
    static_cast<Preparation*>(preparation)->run(static_cast<std::uint64_t>(block), thread);
  }
  Prepared finish();

 private:
  enum Set : std::uint8_t { kTraining, kValidation };
  // Tokens [begin, end) of a block that go to one set.
  struct Run {
    Set set;
    std::size_t begin;
    std::size_t end;
  };
  struct Worker {
    Worker(const ByteBlocks& blocks, const std::string& field) : reader(blocks, field) {}

    ByteBlockReader reader;
    std::vector<Run> runs;
    std::array<std::uint64_t, 2> places{};
    std::array<std::vector<std::uint16_t>, 2> gathered;
  };

  void run(std::uint64_t block, int thread);
  void convert(std::uint64_t block, Worker& worker);
  void place(const ByteBlock& block, Worker& worker);
  void write(const ByteBlock& block, Worker& worker);
  void number_lines(const ByteBlock& block);
  PreparedSet set_of(const TokenWriter& writer) const;

  const ByteBlocks& blocks_;
  const PrepareOptions& options_;
  const std::function<void(std::uint64_t)>& progress_;
  // Before the writers: they remove their files first.
  FolderForOutput folder_;
  std::optional<FolderForOutput> validation_folder_;
  std::array<std::unique_ptr<TokenWriter>, 2> writers_;
  std::vector<std::unique_ptr<Worker>> workers_;

  std::mutex mutex_;
  std::condition_variable turn_;
  // All below are guarded by mutex_.
  std::uint64_t next_block_ = 0;
  std::uint64_t next_document_ = 0;
  std::uint64_t lines_before_ = 0;
  std::exception_ptr error_;
};

Preparation::Preparation(const ByteBlocks& blocks, const PrepareOptions& options, int threads,
                         const std::function<void(std::uint64_t)>& progress)
    : blocks_(blocks),
      options_(options),
      progress_(progress),
      folder_(options.output.parent_path()) {
  writers_[kTraining] = std::make_unique<TokenWriter>(
      TokenWriter::Options{options.output, byte_vocabulary(), options.shard_tokens});
  if (options.validation_fraction > 0) {
    const fs::path path = validation_path(options.output);
    validation_folder_.emplace(path.parent_path());
    writers_[kValidation] = std::make_unique<TokenWriter>(
        TokenWriter::Options{path, byte_vocabulary(), options.shard_tokens});
  }
  for (int thread = 0; thread < threads; ++thread) {
    workers_.push_back(std::make_unique<Worker>(blocks, options.jsonl_field));
  }
}

void Preparation::run(std::uint64_t block, int thread) {
  try {
    convert(block, *workers_[static_cast<std::size_t>(thread)]);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    // The first one that was reported; turns see to it that it is that of the first block.
    if (!error_) {
      error_ = std::current_exception();
    }
    turn_.notify_all();
  }
}

void Preparation::convert(std::uint64_t block, Worker& worker) {
  const ByteBlock* read = nullptr;
  std::exception_ptr unreadable;
  try {
    read = &worker.reader.read(block);
  } catch (const std::exception&) {
    unreadable = std::current_exception();  // to be told in its turn
  }
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return error_ || next_block_ == block; });
    if (error_) {
      return;
    }
    if (unreadable) {
      std::rethrow_exception(unreadable);
    }
    place(*read, worker);
    if (progress_) {
      progress_(blocks_.begin_of(block + 1));
    }
    ++next_block_;
    turn_.notify_all();
  }
  write(*read, worker);
}

void Preparation::number_lines(const ByteBlock& block) {
  for (const ByteBlock::Lines& part : block.lines) {
    lines_before_ = part.begins_file ? 0 : lines_before_;
    if (part.lines.defect) {
      fail<DataError>("{}:{}: {}", blocks_.files()[part.file].path.native(),
                      lines_before_ + part.lines.defect->line, part.lines.defect->message);
    }
    lines_before_ += part.lines.num_lines;
  }
}

void Preparation::place(const ByteBlock& block, Worker& worker) {
  number_lines(block);
  worker.runs.clear();
  std::array<std::uint64_t, 2> sizes{};
  std::size_t begin = 0;
  for (const ByteBlock::Part& part : block.parts) {
    const Set set = is_validation(options_.seed, next_document_, options_.validation_fraction)
                        ? kValidation
                        : kTraining;
    next_document_ += part.ends_document ? 1 : 0;
    sizes[set] += part.end - begin;
    if (!worker.runs.empty() && worker.runs.back().set == set) {
      worker.runs.back().end = part.end;
    } else {
      worker.runs.push_back({set, begin, part.end});
    }
    begin = part.end;
  }
  for (const Set set : {kTraining, kValidation}) {
    if (sizes[set] > 0) {
      worker.places[set] = writers_[set]->reserve(sizes[set]);
    }
  }
}

void Preparation::write(const ByteBlock& block, Worker& worker) {
  if (worker.runs.size() == 1) {
    const Set set = worker.runs.front().set;
    writers_[set]->write(worker.places[set], block.tokens);
    return;
  }
  for (auto& tokens : worker.gathered) {
    tokens.clear();
  }
  for (const Run& run : worker.runs) {
    const auto tokens = block.tokens.subspan(run.begin, run.end - run.begin);
    worker.gathered[run.set].insert(worker.gathered[run.set].end(), tokens.begin(), tokens.end());
  }
  for (const Set set : {kTraining, kValidation}) {
    if (!worker.gathered[set].empty()) {
      writers_[set]->write(worker.places[set], worker.gathered[set]);
    }
  }
}

PreparedSet Preparation::set_of(const TokenWriter& writer) const {
  return {writer.paths(), writer.num_tokens(), writer.num_documents()};
}

Prepared Preparation::finish() {
  if (error_) {
    std::rethrow_exception(error_);
  }
  Prepared prepared{.training = set_of(*writers_[kTraining]), .validation = std::nullopt};
  const PreparedSet& training = prepared.training;
  const std::string& text = blocks_.files().front().path.native();
  std::uint64_t num_bytes = training.num_tokens - training.num_documents;
  if (writers_[kValidation]) {
    prepared.validation = set_of(*writers_[kValidation]);
    num_bytes += prepared.validation->num_tokens - prepared.validation->num_documents;
  }
  check<DataError>(num_bytes > 0, "{}: the text is empty: there is nothing to learn from", text);
  check<DataError>(training.num_documents > 0 &&
                       (!prepared.validation || prepared.validation->num_documents > 0),
                   "{}: a validation fraction of {} leaves {} of {} documents for training: give "
                   "more documents, another fraction or seed, or let training split the stream",
                   text, options_.validation_fraction, training.num_documents, next_document_);
  for (const auto& writer : writers_) {
    if (writer) {
      writer->complete();
    }
  }
  if (writers_[kValidation]) {
    writers_[kValidation]->commit();
  }
  try {
    writers_[kTraining]->commit();
  } catch (const Error&) {
    if (writers_[kValidation]) {
      writers_[kValidation]->withdraw();
    }
    throw;
  }
  return prepared;
}

}  // namespace

bool is_validation(std::uint64_t seed, std::uint64_t document, double fraction) {
  const Philox random = philox(document, kPurpose, seed);
  const std::uint64_t word = random.word[0] | std::uint64_t{random.word[1]} << 32;
  return static_cast<double>(word >> 11) * 0x1p-53 < fraction;
}

fs::path validation_path(const fs::path& output) {
  return output.parent_path() / "validation" / output.filename();
}

Prepared prepare_bytes(const std::vector<TextFile>& texts, const PrepareOptions& options,
                       ThreadPool& pool, const std::function<void(std::uint64_t)>& progress) {
  check<ConfigError>(options.validation_fraction >= 0 && options.validation_fraction < 1,
                     "validation_fraction: must be in [0, 1), got {}", options.validation_fraction);
  check<DataError>(!texts.empty(), "prepare: there is no text");
  check_num_shards(texts, options);
  const ByteBlocks blocks(texts);
  Preparation preparation(blocks, options, pool.threads(), progress);
  pool.run(static_cast<std::int64_t>(blocks.num_blocks()), &Preparation::run_block, &preparation);
  return preparation.finish();
}

}  // namespace fsdptrain::data
