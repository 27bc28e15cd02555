#include "tools/launch/rank_output.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::tools {
namespace {

// So much of one rank before the others have their turn.
constexpr int kReadsInTurn = 4;
// What a worker's descendant keeps printing is no reason not to end.
constexpr int kReadsAtEnd = 1024;

File create_log(const std::filesystem::path& path) {
  std::optional<File> file = File::create(path);
  if (!file) {
    fail_path(path, "making the log", EEXIST);
  }
  return std::move(*file);
}

}  // namespace

void LastLines::add(std::string_view line) {
  if (lines_.size() == kMaxLines) {
    lines_.pop_front();
  }
  const bool is_cut = line.size() > kMaxBytes;
  lines_.push_back(printable(line.substr(0, kMaxBytes)) + (is_cut ? " ..." : ""));
}

RankLog::RankLog(const std::filesystem::path& path) : file_(create_log(path)) {}

void RankLog::add(std::string_view bytes) {
  if (!error_.empty()) {
    return;
  }
  try {
    file_.write_at(nbytes_, std::as_bytes(std::span(bytes)));
    nbytes_ += bytes.size();
  } catch (const IoError& error) {
    error_ = error.what();
  }
}

RankStream::RankStream(Descriptor pipe, const Options& options, Console& console, LastLines& last)
    : pipe_(std::move(pipe)),
      options_(options),
      console_(console),
      last_(last),
      splitter_(options.shows_progress) {
  if (!options_.file.empty()) {
    log_.emplace(options_.file);
  }
  ::fcntl(pipe_.number(), F_SETFL, O_NONBLOCK);
}

void RankStream::read_some() {
  for (int i = 0; i < kReadsInTurn && is_open() && read_once(); ++i) {
  }
}

void RankStream::finish() {
  for (int i = 0; i < kReadsAtEnd && is_open() && read_once(); ++i) {
  }
  if (is_open()) {
    end();
  }
}

bool RankStream::read_once() {
  std::array<char, 16 << 10> bytes{};
  const ssize_t count = ::read(pipe_.number(), bytes.data(), bytes.size());
  if (count < 0) {
    return errno == EINTR;
  }
  if (count == 0) {
    end();
    return false;
  }
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  if (log_) {
    log_->add(text);
  }
  splitter_.feed(text, *this);
  return true;
}

void RankStream::end() {
  splitter_.finish(*this);
  pipe_.close();
}

void RankStream::line(std::string_view text) {
  last_.add(text);
  if (options_.is_shown) {
    console_.line(options_.stream, options_.rank, text);
  }
}

void RankStream::progress(std::string_view text) {
  console_.progress(text);
}

}  // namespace fsdptrain::tools
