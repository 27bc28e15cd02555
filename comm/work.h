#pragma once

#include <memory>

namespace fsdptrain::comm {

class Channel;
struct Batch;

// An operation under way. It keeps its tensors alive; their bytes belong to the operation until
// wait() returns. Used by the issuing thread while the group's World lives.
//
// A Work that is dropped without a wait is an error at the next call: the other ranks would wait
// for it forever.
class [[nodiscard]] Work {
 public:
  Work(Work&& other) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  // Carries out what was issued up to here, in order of issue, then returns: outputs are there and
  // nobody reads the inputs any more. At once after the first time.
  void wait();

 private:
  friend class Channel;
  Work(Channel& channel, std::shared_ptr<Batch> batch);
  void drop() noexcept;

  // Null once it was moved from.
  std::shared_ptr<Batch> batch_;
  Channel* channel_;
  bool was_waited_for_ = false;
};

}  // namespace fsdptrain::comm
