#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fmt/format.h>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/nn/linear.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/reduction.h"
#include "shard/sharded_model.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/random_tensor.h"
#include "tests/support/virtual_time.h"

// How long a step of equal blocks takes where computing, gathering and reducing have given
// durations: docs/sharding.md, "How long a step takes".
namespace fsdptrain::testing {
namespace {

using comm::nccl::Streams;
using std::chrono::nanoseconds;

constexpr std::int64_t kWidth = 8;
constexpr nanoseconds kMatmul{1000};

// One product in the forward, two in the backward, and one more where it is recomputed.
class Product final : public nn::Module {
 public:
  Product() { register_module("linear", linear); }

  nn::Linear linear{{.in = kWidth, .out = kWidth, .bias = false}};

 private:
  Tensor forward(const Tensor& x) override { return ops::gelu(linear(x), ops::GeluForm::Tanh); }
};

class Products final : public nn::Module {
 public:
  explicit Products(int num_blocks) {
    for (int i = 0; i < num_blocks; ++i) {
      blocks.push_back(std::make_unique<Product>());
      register_module(fmt::format("blocks.{}", i), *blocks.back());
    }
  }

  std::vector<std::unique_ptr<Product>> blocks;

 private:
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& block : blocks) {
      y = (*block)(y);
    }
    return y;
  }
};

struct Shape {
  int num_blocks = 1;
  int prefetch = 1;
  Streams streams = Streams::Separate;
  bool recompute = false;
};

struct Durations {
  nanoseconds forward{};
  nanoseconds backward{};
  nanoseconds gather{};
  nanoseconds reduce{};
};

Durations durations_of(const Shape& shape, int percent) {
  const nanoseconds transfer = kMatmul * percent / 100;
  return {.forward = kMatmul,
          .backward = (shape.recompute ? 3 : 2) * kMatmul,
          .gather = transfer,
          .reduce = transfer};
}

// What a number of steps of two ranks does on the streams.
std::vector<VirtualOp> ops_of(const Shape& shape, int num_steps) {
  FakeRanks ranks(2, 0, {.streams = shape.streams}, {}, false);
  ranks.run([&](comm::World& world) {
    Products model(shape.num_blocks);
    shard::ShardedModel sharded(model, world.group(), {.prefetch = shape.prefetch});
    for (const auto& block : model.blocks) {
      block->set_recompute(shape.recompute ? nn::Recompute::Full : nn::Recompute::None);
      sharded.fully_shard(*block);
    }
    sharded.fully_shard(model);
    Tensor x = to_device(random_tensor({4, kWidth}, 1, 1.0, DType::Float32), world.device());
    x.set_requires_grad(true);
    for (int step = 0; step < num_steps; ++step) {
      autograd::backward(ops::sum(model(x)));
    }
  });
  ranks.expect_clean();
  return ranks.session().virtual_ops();
}

// Products and transfers of blocks take their time, all else takes none; each stream of
// communication has a link.
std::vector<VirtualOp> timed(std::vector<VirtualOp> ops, const Durations& durations) {
  for (VirtualOp& op : ops) {
    if (op.name == "matmul") {
      op.duration = kMatmul;
    } else if (op.name.starts_with("ncclAllGather")) {
      op.duration = durations.gather;
    } else if (op.name.starts_with("ncclReduceScatter")) {
      op.duration = durations.reduce;
    }
    for (Place& place : op.places) {
      place.lane = place.stream;
    }
  }
  return ops;
}

nanoseconds makespan_of(const std::vector<VirtualOp>& ops, const Durations& durations) {
  return simulate(timed(ops, durations), LinkModel::Separate).makespan;
}

// The recurrence.
class Step {
 public:
  Step(const Shape& shape, const Durations& durations) : shape_(shape), durations_(durations) {
    const int num_blocks = shape.num_blocks;
    std::vector<nanoseconds> computed(static_cast<std::size_t>(num_blocks));
    const auto at = [](const std::vector<nanoseconds>& ends, int block) {
      return block < 0 || block >= static_cast<int>(ends.size())
                 ? nanoseconds{}
                 : ends[static_cast<std::size_t>(block)];
    };
    nanoseconds end{};
    for (int i = 0; i < num_blocks; ++i) {
      const nanoseconds gathered = gather(at(computed, i - 1 - shape.prefetch));
      end = std::max(end, gathered) + durations.forward;
      computed[static_cast<std::size_t>(i)] = end;
    }
    backward(end);
  }

  nanoseconds makespan() const { return makespan_; }

 private:
  void backward(nanoseconds computed) {
    const int last = shape_.num_blocks - 1;
    std::vector<nanoseconds> gathered(static_cast<std::size_t>(shape_.num_blocks));
    nanoseconds reached = computed;
    nanoseconds reduced{};
    int next = last - 1;
    for (int i = last; i >= 0; --i) {
      for (; next >= std::max(i - shape_.prefetch, 0); --next) {
        gathered[static_cast<std::size_t>(next)] = gather(reached);
      }
      const nanoseconds own = gathered[static_cast<std::size_t>(i)];
      const nanoseconds end = std::max(reached, own) + durations_.backward;
      reached = std::max(end, reduced);
      reduced = reduce(reached);
    }
    makespan_ = reduced;
  }

  nanoseconds gather(nanoseconds ready) {
    return gathers_ = std::max(gathers_, ready) + durations_.gather;
  }
  nanoseconds reduce(nanoseconds ready) {
    nanoseconds& stream = shape_.streams == Streams::Shared ? gathers_ : reductions_;
    return stream = std::max(stream, ready) + durations_.reduce;
  }

  Shape shape_;
  Durations durations_;
  nanoseconds gathers_{};
  nanoseconds reductions_{};
  nanoseconds makespan_{};
};

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const int num_blocks : {1, 2, 5}) {
    for (const int prefetch : {0, 1, 2}) {
      for (const Streams streams : {Streams::Separate, Streams::Shared}) {
        for (const bool recompute : {false, true}) {
          shapes.push_back({num_blocks, prefetch, streams, recompute});
        }
      }
    }
  }
  return shapes;
}

bool fits_under_compute(const Shape& shape, const Durations& durations) {
  const nanoseconds in_backward = shape.streams == Streams::Shared
                                      ? durations.gather + durations.reduce
                                      : std::max(durations.gather, durations.reduce);
  return durations.gather <= durations.forward && in_backward <= durations.backward;
}

// What is computed, with the first gather before it and the last reduction behind it.
nanoseconds exposed_at_the_ends(const Shape& shape, const Durations& durations) {
  return durations.gather + shape.num_blocks * (durations.forward + durations.backward) +
         durations.reduce;
}

// Of rank 0, without what takes no time: f and b compute, g gathers, r reduces.
std::string picture(const std::vector<VirtualOp>& ops, int num_blocks, std::size_t width) {
  const Schedule schedule = simulate(ops, LinkModel::Separate);
  std::vector<VirtualOp> shown;
  Schedule of_shown{.makespan = schedule.makespan};
  int num_products = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool is_here = ops[i].places.front().device == 0;
    const bool is_product = ops[i].name == "matmul";
    if (ops[i].duration.count() == 0 || (is_product && !is_here)) {
      continue;
    }
    VirtualOp op = ops[i];
    std::erase_if(op.places, [](const Place& place) { return place.device != 0; });
    num_products += is_product ? 1 : 0;
    op.name = is_product ? (num_products <= num_blocks ? "forward" : "backward")
                         : (op.name.starts_with("ncclAllGather") ? "gather" : "reduce");
    shown.push_back(std::move(op));
    of_shown.spans.push_back(schedule.spans[i]);
  }
  std::string text;
  std::istringstream rows(timeline(shown, of_shown, width));
  for (const char* const name : {"compute ", "gather  ", "reduce  "}) {
    std::string row;
    std::getline(rows, row);
    text += name + row.substr(row.find('|')) + "\n";
  }
  return text;
}

}  // namespace

TEST_SUITE("shard/overlap") {
  TEST_CASE("a step of equal blocks takes what the recurrence says, to the nanosecond") {
    for (const Shape& shape : all_shapes()) {
      CAPTURE(shape.num_blocks);
      CAPTURE(shape.prefetch);
      CAPTURE((shape.streams == Streams::Shared));
      CAPTURE(shape.recompute);
      const std::vector<VirtualOp> one = ops_of(shape, 1);
      const std::vector<VirtualOp> two = ops_of(shape, 2);
      for (const int percent : {10, 30, 50, 100, 200}) {
        CAPTURE(percent);
        const Durations durations = durations_of(shape, percent);
        const nanoseconds makespan = Step(shape, durations).makespan();
        CHECK(makespan_of(one, durations) == makespan);
        CHECK(makespan_of(two, durations) == 2 * makespan);
      }
    }
  }

  TEST_CASE("with one unit ahead only the first gather and the last reduction are exposed") {
    int num_fitting = 0;
    for (const Shape& shape : all_shapes()) {
      for (const int percent : {10, 30, 50, 100, 200}) {
        const Durations durations = durations_of(shape, percent);
        const bool fits = fits_under_compute(shape, durations) && shape.prefetch >= 1;
        num_fitting += fits ? 1 : 0;
        const nanoseconds makespan = Step(shape, durations).makespan();
        // Of one block all is first and last.
        if (fits || shape.num_blocks == 1) {
          CHECK(makespan == exposed_at_the_ends(shape, durations));
        } else {
          CHECK(makespan > exposed_at_the_ends(shape, durations));
        }
      }
    }
    CHECK(num_fitting == 96);
  }

  TEST_CASE("the picture of a step with one unit ahead is that of the documentation") {
    const Shape shape{.num_blocks = 4};
    const Durations durations = durations_of(shape, 50);
    const std::vector<VirtualOp> ops = timed(ops_of(shape, 1), durations);
    CHECK(picture(ops, shape.num_blocks, 52) ==
          "compute |..ffffffffffffffffbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb..|\n"
          "gather  |gggg..gg..gg......gg......gg......gg................|\n"
          "reduce  |..........................rr......rr......rr......rr|\n");
  }
}

}  // namespace fsdptrain::testing
