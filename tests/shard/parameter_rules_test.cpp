#include "runtime/nn/parameter_rules.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"
#include "tests/support/sharded_net.h"

// The owner of sharded parameters obeys rules as that of whole ones does.
namespace fsdptrain::testing {
namespace {

using Rules = std::vector<nn::ParameterRule>;

// A group under rules beside the whole module under the same.
struct Pair {
  Pair(comm::World& of, const Rules& rules, DType compute = DType::Float32)
      : world(of),
        dtype(compute),
        lone(net, of.group(),
             {.policy = {.param_dtype = compute}, .gradient_divide_factor = 1, .seed = 5}, rules),
        group(lone.group),
        whole({.compute_dtype = compute, .seed = 5, .rules = rules}) {}

  void backward(int step) {
    group.zero_grad();
    autograd::backward(NetLoss{}(net, world.rank(), step, dtype));
    group.mark_active_segments();
    whole.set_gradients(whole.sum_of_gradients(world.size(), step));
  }

  // Three steps of the optimizer of each.
  void train(optim::Optimizer& of_group, optim::Optimizer& of_whole) {
    for (int step = 0; step < 3; ++step) {
      backward(step);
      of_group.step(group.chunks(), 0.01, {});
      group.bump_epoch();
      of_whole.step(whole.owner().chunks(), 0.01, {});
      whole.owner().bump_epoch();
    }
  }

  double difference() {
    return difference_of(group, world.rank(), Of::Parameters, whole.values()).largest;
  }

  comm::World& world;
  DType dtype;
  Net net;
  LoneGroup lone;
  shard::ParamGroup& group;
  Unsharded<> whole;
};

}  // namespace

TEST_SUITE("shard/parameter_rules") {
  TEST_CASE("learning rate and decay of a parameter are those of one rank, bit for bit") {
    const Rules rules{{.pattern = "a.*", .lr_scale = 0.125},
                      {.pattern = "b.weight", .decay = false},
                      {.pattern = "b.bias", .decay = true, .lr_scale = 0},
                      {.pattern = "a.bias", .trainable = false}};
    on_ranks([&](comm::World& world) {
      Pair adamw(world, rules);
      optim::AdamW first(adamw.group.chunks(), {.weight_decay = 0.3});
      optim::AdamW first_of_whole(adamw.whole.owner().chunks(), {.weight_decay = 0.3});
      const Values before = adamw.whole.values();
      adamw.train(first, first_of_whole);
      CHECK(adamw.difference() == 0);
      for (const auto& [name, values] : adamw.whole.values()) {
        const bool is_trained = name == "a.weight" || name == "b.weight";
        CHECK((values != before.at(name)) == is_trained);
      }

      Pair sgd(world, rules);
      optim::Sgd second(sgd.group.chunks(), {.momentum = 0.9, .weight_decay = 0.3});
      optim::Sgd second_of_whole(sgd.whole.owner().chunks(),
                                 {.momentum = 0.9, .weight_decay = 0.3});
      sgd.train(second, second_of_whole);
      CHECK(sgd.difference() == 0);
    });
  }

  TEST_CASE("what is frozen is kept in the dtype of its rule, and computes in that of the policy") {
    const Rules rules{{.pattern = "b.*", .trainable = false, .dtype = DType::BFloat16}};
    for (const DType compute : {DType::Float32, DType::BFloat16}) {
      CAPTURE(name_of(compute));
      on_ranks([&](comm::World& world) {
        Pair pair(world, rules, compute);
        std::int64_t num_frozen = 0;
        for (const shard::FlatBuffer& buffer : pair.group.buffers()) {
          for (const shard::FlatBuffer::Member& member : buffer.members()) {
            const bool is_b = pair.group.parameters()[member.parameter].name.starts_with("b.");
            num_frozen += is_b ? 1 : 0;
            CHECK((buffer.chunk().dtype() == DType::BFloat16) == is_b);
            CHECK(member.values.dtype() == compute);
          }
        }
        CHECK(num_frozen == 2);
        CHECK(pair.difference() == 0);
        pair.backward(0);
        Values gradients;
        for (const auto& named : pair.whole.owner().named()) {
          if (named.gradient.defined()) {
            gradients[named.name] = named.gradient.to_vector();
          }
        }
        CHECK(gradients.contains("a.weight"));
        CHECK_FALSE(gradients.contains("b.weight"));
        CHECK(difference_of(pair.group, world.rank(), Of::Gradients, gradients).largest == 0);
      });
    }
  }
}

}  // namespace fsdptrain::testing
