#pragma once

#include <memory>
#include <utility>

namespace fsdptrain::comm {

// What was issued at once, to whoever carries it out.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  virtual ~Pending() = default;

  // As Work::wait(), the first time.
  virtual void wait() = 0;
  // Its Work was dropped without a wait.
  virtual void drop() noexcept = 0;
};

// An operation under way. It keeps its tensors alive; their bytes belong to the operation until
// wait() returns. Used by the issuing thread while the group's World lives.
//
// A Work that is dropped without a wait is an error at the next call: the other ranks would wait
// for it forever.
class [[nodiscard]] Work {
 public:
  // By whoever carries it out.
  explicit Work(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}
  Work(Work&& other) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  // On the CPU: carries out what was issued up to here, in order of issue, then returns; outputs
  // are there and nobody reads the inputs any more. On CUDA: what is launched from now on on the
  // stream that is current now runs after the operation; the host does not wait. At once after the
  // first time.
  void wait();

 private:
  void drop() noexcept;

  // Null once it was moved from.
  std::shared_ptr<Pending> pending_;
  bool was_waited_for_ = false;
};

}  // namespace fsdptrain::comm
