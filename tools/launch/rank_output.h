#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/file.h"
#include "tools/launch/console.h"
#include "tools/launch/line_splitter.h"
#include "tools/launch/options.h"

namespace fsdptrain::tools {

// The last lines of a rank, of both its streams.
class LastLines {
 public:
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxBytes = 1000;

  std::deque<std::string> lines_;
};

// A file of what a rank prints, byte for byte. After an error, such as a full disk, the rest is
// thrown away.
class RankLog {
 public:
  // PathError if it cannot be made, or is there.
  explicit RankLog(const std::filesystem::path& path);

  void add(std::string_view bytes);
  // Empty: all has been written.
  const std::string& error() const { return error_; }

 private:
  File file_;
  std::uint64_t nbytes_ = 0;
  std::string error_;
};

// One standard stream of a rank: from its pipe to the console and its file.
class RankStream final : public LineTaker {
 public:
  struct Options {
    int rank = 0;
    StandardStream stream = StandardStream::Output;
    bool is_shown = true;
    bool shows_progress = false;
    // Empty: no file.
    std::filesystem::path file;
  };

  // The console and the lines outlive the stream.
  RankStream(Descriptor pipe, const Options& options, Console& console, LastLines& last);

  // Reads what is there, within reason: another rank waits. At its end the pipe is closed.
  void read_some();
  // Reads what is there and no more; whoever has the other end prints for nobody.
  void finish();

  bool is_open() const { return pipe_.is_open(); }
  int descriptor() const { return pipe_.number(); }
  // The console has enough to do.
  bool must_wait() { return options_.is_shown && console_.sink(options_.stream).is_full(); }
  // Empty: all that had to be written to the file was.
  std::string file_error() const { return log_ ? log_->error() : ""; }

  void line(std::string_view text) override;
  void progress(std::string_view text) override;

 private:
  // False where there is nothing now.
  bool read_once();
  void end();

  Descriptor pipe_;
  Options options_;
  Console& console_;
  LastLines& last_;
  LineSplitter splitter_;
  std::optional<RankLog> log_;
};

}  // namespace fsdptrain::tools
