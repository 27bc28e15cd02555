#include "tools/bench/rank_turns.h"

namespace fsdptrain::tools {

double RankTurns::together(const std::function<double()>& run) {
  world_.control().issue(comm::barrier()).wait();
  return largest(run());
}

double RankTurns::on_rank_0(const std::function<double()>& run) {
  return largest(world_.rank() == 0 ? run() : 0);
}

double RankTurns::largest(double value) {
  const Tensor values = Tensor::of({value}, DType::Float64);
  world_.control().issue(comm::all_reduce(values, {.op = comm::ReduceOp::Max})).wait();
  return values.item(0);
}

}  // namespace fsdptrain::tools
