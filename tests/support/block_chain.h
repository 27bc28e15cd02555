#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/flight/reader.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "tests/support/sharded_net.h"

// A model of equal blocks, and what its sharding calls.
namespace fsdptrain::testing {

constexpr std::int64_t kChainWidth = 6;

// gelu(linear), as often as there are blocks, and a frozen and a trained part of the chain's own.
class Chain final : public nn::Module {
 public:
  explicit Chain(int num_blocks) {
    for (int i = 0; i < num_blocks; ++i) {
      blocks.push_back(std::make_unique<nn::Linear>(
          nn::Linear::Options{.in = kChainWidth, .out = kChainWidth, .standard_deviation = 0.5}));
      register_module(fmt::format("blocks.{}", i), *blocks.back());
    }
    register_parameter("scale", scale, {.init = nn::Init::normal(0.5)});
  }

  std::vector<std::unique_ptr<nn::Linear>> blocks;
  Tensor scale = nn::unplaced_parameter({kChainWidth});
  // What runs, by number; all in order where this is empty.
  std::vector<std::size_t> route;
  // Around each block, for what shall happen there.
  std::function<void(std::size_t)> before_block = [](std::size_t /*block*/) {};

 private:
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    std::vector<std::size_t> numbers = route;
    for (std::size_t i = 0; route.empty() && i < blocks.size(); ++i) {
      numbers.push_back(i);
    }
    for (const std::size_t i : numbers) {
      before_block(i);
      y = ops::gelu((*blocks[i])(y), ops::GeluForm::Tanh);
    }
    return ops::multiply(y, scale);
  }
};

struct ChainLoss {
  Tensor operator()(Chain& chain, int rank, int step, DType dtype) const {
    const Tensor x =
        random_tensor({4, kChainWidth}, static_cast<std::uint64_t>(rank + 100 * step), 1.0, dtype);
    const Tensor y = chain(x);
    return ops::sum(ops::multiply(y, y));
  }
};

// What this rank has called since number `from`: "G2 " gathers group 2, "R2 " reduces
// its gradients, and in the backward gathers are lower case.
inline std::string gathers_and_reductions(const comm::World& world, std::uint64_t& from) {
  std::string text;
  const auto snapshot =
      comm::read_flight_ring(world.flight_ring().memory().descriptor(), "the ring of this rank");
  for (const comm::FlightRecord& record : snapshot.records) {
    const auto op = static_cast<comm::Op>(record.op);
    if (record.number < from || (op != comm::Op::AllGather && op != comm::Op::ReduceScatter)) {
      continue;
    }
    from = record.number + 1;
    const bool backward =
        static_cast<comm::Direction>(record.tag.direction) == comm::Direction::Backward;
    const char letter = op == comm::Op::ReduceScatter ? 'R' : backward ? 'g' : 'G';
    text += fmt::format("{}{} ", letter, record.tag.group);
  }
  return text;
}

}  // namespace fsdptrain::testing
