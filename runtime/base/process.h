#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "runtime/base/descriptor.h"

// Processes that this one starts, and waits for.
namespace fsdptrain {

using Environment = std::map<std::string, std::string>;
// Of this process.
Environment own_environment();

struct Pipe {
  Descriptor read;
  Descriptor write;
};
// Both ends are closed in programs that this process starts, unless they are put there. IoError.
Pipe make_pipe();

struct ProcessOptions {
  // A path, or a name that is looked up in PATH.
  std::string program;
  // From the program's name on.
  std::vector<std::string> arguments;
  // Nothing: that of this process.
  std::optional<Environment> environment = std::nullopt;
  // By the number in the new process, descriptors of this one. Of the others, those stay open that
  // are not closed on exec.
  std::map<int, int> descriptors = {};
  // Whether the process leads a group of its own.
  bool has_own_group = false;
};

// The caller waits for it. IoError with what helps where the system starts none.
pid_t start_process(const ProcessOptions& options);

struct ProcessEnd {
  // The exit code; of a process that a signal ended, the signal.
  int value = 0;
  bool is_signal = false;

  // As shells have it: 128 and the signal.
  int shell_code() const { return is_signal ? 128 + value : value; }
  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};
// "ended with exit code 3", "was ended by signal 11 (SIGSEGV)"
std::string to_string(const ProcessEnd& end);

// Of a child that has ended: it is waited for, and its number may be another's from now on. Nothing
// while it runs, or where it is no child that can be waited for.
std::optional<ProcessEnd> take_end(pid_t child);

// A child that ends with its owner.
class Process {
 public:
  explicit Process(const ProcessOptions& options) : id_(start_process(options)) {}
  Process(Process&& other) noexcept : id_(std::exchange(other.id_, 0)), end_(other.end_) {}
  Process& operator=(Process&&) = delete;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  // Kills it if it runs, and waits for it.
  ~Process();

  // 0 when it has been waited for.
  pid_t id() const { return id_; }
  // To one that has been waited for, nothing.
  void send(int signal) const;
  // Waits until it has ended. As often as one likes.
  ProcessEnd wait();
  // How it has ended, if it has.
  std::optional<ProcessEnd> poll();

 private:
  pid_t id_;
  std::optional<ProcessEnd> end_;
};

}  // namespace fsdptrain
