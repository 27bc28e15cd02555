#pragma once

#include "tests/fakecuda/machine.h"

namespace fsdptrain::fakecuda {

// The rank threads of a session. The session's machine outlives it.
class RankSchedule final : public HostSchedule {
 public:
  RankSchedule(Machine& machine, int num_threads);

  void begin(int rank) override;
  void end(int rank) override;
  void wait(const std::function<bool()>& ready) override;

 private:
  Host& host_of(int rank);

  Machine& machine_;
};

}  // namespace fsdptrain::fakecuda
