#include <cmath>
#include <fmt/format.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/flight/reader.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "shard/param_group.h"
#include "tests/support/sharded_net.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using doctest::Contains;
using testing::batch_of;
using testing::difference;
using testing::LoneGroup;
using testing::Net;
using testing::Of;
using testing::on_ranks;
using testing::Sharded;
using testing::Unsharded;

// What this rank has called, one after the other, each with direction and number of its tag.
std::string collectives_of(const World& world) {
  std::string names;
  const auto snapshot =
      comm::read_flight_ring(world.flight_ring().memory().descriptor(), "the ring of this rank");
  for (const comm::FlightRecord& record : snapshot.records) {
    if (static_cast<comm::Op>(record.op) == comm::Op::CreateGroup) {
      continue;
    }
    const bool is_forward =
        static_cast<comm::Direction>(record.tag.direction) == comm::Direction::Forward;
    names += fmt::format("{} {} {}, ", comm::name_of(static_cast<comm::Op>(record.op)),
                         is_forward ? "forward" : "backward", record.tag.invocation);
  }
  return names;
}

// x, for which no gradient comes back.
Tensor cut(const Tensor& x) {
  return autograd::record("cut", x.detach(), {x},
                          [](const Tensor& /*dy*/, autograd::GradientSink& /*sink*/) {
                            return autograd::Gradients(1);
                          });
}

// y = 2 x
class Frozen final : public nn::Module {
 public:
  Frozen() {
    register_parameter("factor", factor_, {.init = nn::Init::constant(2), .trainable = false});
  }

 private:
  Tensor forward(const Tensor& x) override { return ops::multiply(x, factor_); }

  Tensor factor_ = nn::unplaced_parameter({2});
};

}  // namespace

TEST_SUITE("shard/param_group memory and order") {
  TEST_CASE("a step gathers each buffer twice and reduces the trained one, in this order") {
    for (const int num_ranks : {2, 3}) {
      CAPTURE(num_ranks);
      comm::run_ranks({.num_ranks = num_ranks}, [](World& world) {
        Sharded<> sharded(world, {.seed = 5});
        autograd::backward(sharded.loss(0));
        CHECK(collectives_of(world) ==
              "all_gather forward 1, all_gather forward 1, all_gather backward 2, all_gather "
              "backward 2, reduce_scatter backward 1, ");
      });
    }
  }

  TEST_CASE("one rank calls no collective, and its parameters are its chunk") {
    comm::run_ranks({.num_ranks = 1}, [](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      sharded.group.unshard();
      CHECK(sharded.net.offset.view().data == sharded.group.buffers()[0].chunk().view().data);
      CHECK(sharded.net.a.weight().view().data != nullptr);
      sharded.group.reshard();
      autograd::backward(sharded.loss(0));
      CHECK(collectives_of(world) == "");
      const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
      CHECK(counters.peak_of(MemoryCategory::Communication) == 0);
    });
  }

  TEST_CASE("gathered buffers are there in the forward and backward only") {
    comm::run_ranks({.num_ranks = 2}, [](World& world) {
      const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
      Sharded<> sharded(world, {.seed = 5});
      const auto rests = [&] { return sharded.lone.pool.idle(); };
      CHECK(rests());
      {
        const Tensor loss = sharded.loss(0);
        CHECK(rests());
        autograd::backward(loss);
      }
      CHECK(rests());
      CHECK(counters.peak_of(MemoryCategory::Communication) > 0);
      const autograd::NoGradGuard no_grad;
      sharded.net(batch_of(world.rank(), 0, DType::Float32));
      CHECK(rests());
      CHECK_FALSE(sharded.group.unsharded());
    });
  }

  TEST_CASE("three forwards and one backward hold one gathered buffer and two of gradients") {
    comm::run_ranks({.num_ranks = 2}, [](World& world) {
      const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
      Sharded<> sharded(world, {.seed = 5});
      const Tensor loss = ops::add(ops::add(sharded.loss(0), sharded.loss(1)), sharded.loss(2));
      autograd::backward(loss);
      std::int64_t expected = 0;
      for (const FlatBuffer& buffer : sharded.group.buffers()) {
        const auto nbytes = static_cast<std::size_t>(buffer.layout().numel()) * sizeof(float);
        const auto one = static_cast<std::int64_t>(size_class(nbytes));
        expected += buffer.trainable() ? 3 * one : one;
      }
      CHECK(counters.peak_of(MemoryCategory::Communication) == expected);
    });
  }

  TEST_CASE("nothing is gathered any more when the backward goes on to what came before") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      Tensor x = batch_of(world.rank(), 0, DType::Float32);
      x.set_requires_grad(true);
      bool was_unsharded = true;
      x.autograd_meta()->post_accumulate_hooks.emplace_back(
          [&] { was_unsharded = sharded.group.unsharded(); });
      autograd::backward(ops::sum(sharded.net(ops::add(x, x))));
      CHECK_FALSE(was_unsharded);
    });
  }

  TEST_CASE("a group of frozen parameters is given back by the end of the backward") {
    on_ranks([](World& world) {
      Frozen net;
      LoneGroup lone(net, world.group(), {.seed = 5});
      ParamGroup& group = lone.group;
      CHECK(group.chunks().empty());
      Tensor x = Tensor::full({2}, 3);
      x.set_requires_grad(true);
      autograd::backward(ops::sum(net(x)));
      CHECK(x.grad().to_vector() == std::vector<double>{2, 2});
      CHECK_FALSE(group.unsharded());
    });
  }

  TEST_CASE("a parameter is read outside of its module's forward: an error that names it") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      CHECK_THROWS_WITH_AS(sharded.net.a.weight().view(),
                           Contains("the sharded parameter a.weight, gathered only within its "
                                    "module's forward and backward"),
                           StorageError);
      CHECK_THROWS_WITH_AS(sharded.net.offset.view(), Contains("the sharded parameter offset"),
                           StorageError);
      sharded.group.unshard();
      CHECK(sharded.net.a.weight().to_vector().size() == 35);
      sharded.group.reshard();
      CHECK_THROWS_AS(sharded.net.a.weight().view(), StorageError);
    });
  }

  TEST_CASE("what was issued ahead is gathered once, and given back by who does not use it") {
    for (const int num_ranks : {2, 3}) {
      CAPTURE(num_ranks);
      comm::run_ranks({.num_ranks = num_ranks}, [](World& world) {
        Sharded<> sharded(world, {.seed = 5});
        Sharded<> other(world, {.seed = 6, .tag = {.group = 1}});
        sharded.group.issue_unshard();
        other.group.issue_unshard();
        sharded.group.issue_unshard();
        CHECK_FALSE(sharded.group.unsharded());
        CHECK_THROWS_AS(sharded.net.a.weight().view(), StorageError);
        const autograd::NoGradGuard no_grad;
        CHECK(std::isfinite(sharded.loss(0).item()));
        other.group.reshard();
        CHECK(sharded.lone.pool.idle());
        CHECK(other.lone.pool.idle());
        // An update makes what is under way useless.
        sharded.group.issue_unshard();
        sharded.group.bump_epoch();
        sharded.group.unshard();
        sharded.group.unshard();
        sharded.group.reshard();
        CHECK(collectives_of(world) ==
              "all_gather forward 1, all_gather forward 1, all_gather forward 1, "
              "all_gather forward 1, all_gather forward 2, all_gather forward 2, "
              "all_gather forward 3, all_gather forward 3, ");
      });
    }
  }

  TEST_CASE("a rank whose backward brings no gradients takes part in the reduction with zeros") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.gradient_divide_factor = 1, .seed = 5});
      Unsharded<> whole({.seed = 5});
      const Tensor loss = sharded.loss(0);
      const bool is_cut = world.rank() == 0;
      autograd::backward(is_cut ? cut(loss) : loss);
      testing::Values expected;
      if (world.size() > 1) {
        expected = whole.gradients_of(1, 0);
      }
      if (world.size() > 2) {
        for (const auto& [name, values] : whole.gradients_of(2, 0)) {
          expected[name] = testing::added(expected[name], values, DType::Float32);
        }
      }
      CHECK(difference(sharded, Of::Gradients, expected).largest == 0);
      sharded.group.mark_active_segments();
      for (const nn::Segment& segment : sharded.group.chunks().at(0).segments) {
        CHECK(segment.active == (!is_cut && segment.name != "unused"));
      }
    });
  }

  TEST_CASE("an update is seen by the next gather, also where nothing was resharded") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      sharded.group.unshard();
      for (nn::FlatChunk& chunk : sharded.group.chunks()) {
        for (const nn::Segment& segment : chunk.segments) {
          for (std::int64_t i = segment.begin; i < segment.end; ++i) {
            chunk.parameters.set_item(i, 2);
          }
        }
      }
      sharded.group.bump_epoch();
      sharded.group.unshard();
      CHECK(sharded.net.a.weight().to_vector() == std::vector<double>(35, 2));
      sharded.group.reshard();
    });
  }
}

TEST_SUITE("shard/param_group errors") {
  TEST_CASE("an update between forward and backward is refused by name") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      const Tensor loss = sharded.loss(0);
      sharded.group.bump_epoch();
      CHECK_THROWS_WITH_AS(autograd::backward(loss),
                           Contains("parameter b.weight was changed between forward and backward"),
                           AutogradError);
      sharded.lone.reset();
    });
  }

  TEST_CASE("after a backward that failed, reset_iter_state makes the next step a clean one") {
    on_ranks([](World& world) {
      const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
      Sharded<> sharded(world, {.gradient_divide_factor = 1, .seed = 5});
      Unsharded<> whole({.seed = 5});
      autograd::backward(sharded.loss(2));
      // When the gradient of b's weight is written, and that of a's is not.
      sharded.net.a.add_hooks({.pre_forward = {},
                               .post_forward =
                                   [](nn::Module::Tensors& outputs) {
                                     outputs[0].autograd_meta()->pre_backward_hooks.emplace_back(
                                         [] { fail("planted"); });
                                   },
                               .owner = &counters});
      CHECK_THROWS_WITH_AS(autograd::backward(sharded.loss(1)), Contains("planted"), Error);
      sharded.net.a.remove_hooks(&counters);
      CHECK_THROWS_WITH_AS(sharded.loss(0), Contains("call reset_iter_state() on all ranks"),
                           AutogradError);
      sharded.lone.reset();
      CHECK_FALSE(sharded.group.unsharded());
      CHECK(sharded.lone.pool.idle());
      autograd::backward(sharded.loss(0));
      const testing::Difference found =
          difference(sharded, Of::Gradients, whole.sum_of_gradients(world.size(), 0));
      CHECK(found.largest == 0);
    });
  }

  TEST_CASE("a forward that failed leaves nothing gathered and no invocation open") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      CHECK_THROWS_AS(sharded.net(Tensor::zeros({4, 6})), ShapeError);
      CHECK_FALSE(sharded.group.unsharded());
      CHECK(sharded.group.current_invocation().id == 0);
    });
  }

  TEST_CASE("parameters have one owner, and none when it is gone") {
    comm::run_ranks({.num_ranks = 2}, [](World& world) {
      Net net;
      {
        const LoneGroup lone(net, world.group(), {});
        CHECK_FALSE(nn::is_unplaced(net.a.weight()));
        CHECK(testing::members_of(net).parameters.empty());
      }
      CHECK(nn::is_unplaced(net.a.weight()));
      CHECK_THROWS_WITH_AS(net(Tensor::zeros({4, 5})), Contains("devices cpu and meta differ"),
                           DeviceError);
      const LoneGroup again(net, world.group(), {});
    });
  }

  TEST_CASE("dtypes that do not fit are refused") {
    comm::run_ranks({.num_ranks = 1}, [](World& world) {
      Net net;
      CHECK_THROWS_WITH_AS(LoneGroup(net, world.group(), {.dtype = DType::BFloat16}),
                           Contains("kept in float32 or float64, got bfloat16"), DTypeError);
      CHECK_THROWS_WITH_AS(
          LoneGroup(net, world.group(), {.policy = {.reduce_dtype = DType::Int32}}),
          Contains("a policy has floating dtypes, got int32"), DTypeError);
      CHECK_THROWS_WITH_AS(
          LoneGroup(net, world.group(), {},
                    {{.pattern = "offset", .trainable = true, .dtype = DType::Float64}}),
          Contains("offset is trained and must be kept in float32, got float64"), ConfigError);
    });
  }
}

}  // namespace fsdptrain::shard
