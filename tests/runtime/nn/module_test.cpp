#include "runtime/nn/module.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/layer_norm.h"
#include "runtime/nn/linear.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"

namespace fsdptrain::nn {
namespace {

using Log = std::vector<std::string>;
using Values = std::vector<double>;

// Doubles its input, or throws what it was told to.
class Doubling final : public Module {
 public:
  enum class Fault { None, Shape, Foreign };
  Fault fault = Fault::None;

 private:
  Tensor forward(const Tensor& x) override {
    switch (fault) {
      case Fault::None:
        break;
      case Fault::Shape:
        fail<ShapeError>("doubling: no luck");
      case Fault::Foreign:
        throw std::runtime_error("not ours");
    }
    return ops::scale(x, 2);
  }
};

// Two levels around it, with a method beside forward.
class Block final : public Module {
 public:
  Block() {
    register_parameter("scale", scale, {.init = Init::constant(1), .decay = false});
    register_module("attn", attn);
    register_module("norm", norm);
    register_adjacent({"q", "k"});
  }
  Tensor scale = Tensor::empty({3}, DType::Float32, Device::meta());
  Doubling attn;
  LayerNorm norm{{.features = 3, .bias = true}};

 private:
  Tensor forward(const Tensor& x) override { return attn(x); }
};

class Model final : public Module {
 public:
  Model() { register_module("h.0", block); }
  Tensor twice(const Tensor& x) {
    return through_hooks(
               {x, x}, [this](const Tensors& in) { return Tensors{block(ops::add(in[0], in[1]))}; })
        .front();
  }
  Block block;
};

// Registers two things under names of its caller.
class Pair final : public Module {
 public:
  Pair(const std::string& parameter, const std::string& child) {
    register_parameter("weight", first, {});
    register_module("attn", attn);
    register_parameter(parameter, second, {});
    register_module(child, norm);
  }
  Tensor first = Tensor::empty({3}, DType::Float32, Device::meta());
  Tensor second = Tensor::empty({3}, DType::Float32, Device::meta());
  Doubling attn;
  Doubling norm;
};

Module::Hooks logging(Log& log, const std::string& name) {
  return {.pre_forward = [&log, name](Module::Tensors&) { log.push_back("pre " + name); },
          .post_forward = [&log, name](Module::Tensors&) { log.push_back("post " + name); },
          .forward_failed = [&log, name] { log.push_back("failed " + name); }};
}

// exp(x), dropped out in training, between logs of what runs.
class Dropping final : public Module {
 public:
  explicit Dropping(Log& log) : log_(log) { register_module("drop", drop_); }
  Dropout& drop() { return drop_; }

 private:
  Tensor forward(const Tensor& x) override {
    log_.emplace_back(autograd::replaying() ? "replay" : "forward");
    return drop_(ops::exp(x));
  }

  Log& log_;
  Dropout drop_{0.5, 3};
};

}  // namespace

TEST_SUITE("runtime/nn/module") {
  TEST_CASE("a recomputed module runs again in backward, hooks and all") {
    const Tensor x = Tensor::of({0, 1, 2, 3, 4, 5}).alias({2, 3}, {3, 1}, 0);
    std::vector<Values> gradients;
    for (const Recompute policy : {Recompute::None, Recompute::Selective, Recompute::Full}) {
      Log log;
      Dropping module(log);
      module.add_hooks(logging(log, "hook"));
      module.set_recompute(policy);
      Tensor leaf = x.detach().set_requires_grad(true);
      const Tensor y = module(leaf);
      const Log once{"pre hook", "forward", "post hook"};
      CHECK(log == once);
      log.clear();
      autograd::backward(ops::sum(ops::square(y)));
      CHECK(log == (policy == Recompute::None ? Log{} : Log{"pre hook", "replay", "post hook"}));
      gradients.push_back(leaf.grad().to_vector());
      CHECK(gradients.back() == gradients.front());
    }
  }

  TEST_CASE("a module that changed its mode or went away before its replay is named") {
    Log log;
    auto module = std::make_unique<Dropping>(log);
    module->set_recompute(Recompute::Full);
    Tensor x = Tensor::of({0, 1}).alias({1, 2}, {2, 1}, 0).set_requires_grad(true);
    const Tensor y = ops::sum((*module)(x));
    module->drop().set_training(false);
    CHECK_THROWS_WITH_AS(
        autograd::backward(y, {.grad_output = {}, .retain_graph = true}),
        doctest::Contains("recompute of the root module: the training mode was changed between "
                          "forward and backward"),
        AutogradError);
    module->drop().set_training(true);
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    module.reset();
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("recompute of the root module: the module is gone: it must live until"),
        AutogradError);
  }

  TEST_CASE("pre-forward hooks run in order, post-forward hooks in reverse") {
    Log log;
    Doubling module;
    module.add_hooks(logging(log, "a"));
    module.add_hooks({});
    module.add_hooks(logging(log, "b"));
    CHECK(module(Tensor::of({3})).to_vector() == Values{6});
    CHECK(log == Log{"pre a", "pre b", "post b", "post a"});
  }

  TEST_CASE("hooks replace arguments and results") {
    Doubling module;
    module.add_hooks({.pre_forward = [](Module::Tensors& in) { in[0] = ops::affine(in[0], 1, 10); },
                      .post_forward = [](Module::Tensors& out) { out[0] = ops::scale(out[0], -1); },
                      .forward_failed = {}});
    CHECK(module(Tensor::of({3})).to_vector() == Values{-26});
    CHECK_THROWS_AS(module(Tensor::of({3}, DType::Int64)), DTypeError);
  }

  TEST_CASE("other methods go through the hooks with all their tensors") {
    Log log;
    Model model;
    model.add_hooks(logging(log, "model"));
    model.add_hooks({.pre_forward =
                         [](Module::Tensors& in) {
                           REQUIRE(in.size() == 2);
                           in[1] = Tensor::of({100});
                         },
                     .post_forward = {},
                     .forward_failed = {}});
    model.block.add_hooks(logging(log, "block"));
    CHECK(model.twice(Tensor::of({3})).to_vector() == Values{206});
    CHECK(log == Log{"pre model", "pre block", "post block", "post model"});
  }

  TEST_CASE("a failing body runs forward_failed instead of post_forward, whatever it throws") {
    for (const auto fault : {Doubling::Fault::Shape, Doubling::Fault::Foreign}) {
      Log log;
      Doubling module;
      module.fault = fault;
      module.add_hooks(logging(log, "a"));
      module.add_hooks(logging(log, "b"));
      CHECK_THROWS(module(Tensor::of({3})));
      CHECK(log == Log{"pre a", "pre b", "failed b", "failed a"});
    }
  }

  TEST_CASE("a failing hook undoes only what was entered and not yet left") {
    Log log;
    Doubling module;
    const auto raise = [](Module::Tensors&) { fail("a hook fails"); };
    module.add_hooks(logging(log, "a"));
    Module::Hooks middle = logging(log, "b");
    middle.post_forward = raise;
    module.add_hooks(middle);
    module.add_hooks(logging(log, "c"));
    CHECK_THROWS_WITH_AS(module(Tensor::of({3})), doctest::Contains("a hook fails"), Error);
    CHECK(log == Log{"pre a", "pre b", "pre c", "post c", "failed a"});
    log.clear();
    Doubling other;
    other.add_hooks(logging(log, "a"));
    Module::Hooks second = logging(log, "b");
    second.pre_forward = raise;
    other.add_hooks(second);
    other.add_hooks(logging(log, "c"));
    CHECK_THROWS_AS(other(Tensor::of({3})), Error);
    CHECK(log == Log{"pre a", "failed a"});
  }

  TEST_CASE("an error keeps its type and gains the path of modules") {
    Model model;
    model.block.attn.fault = Doubling::Fault::Shape;
    CHECK_THROWS_WITH_AS(model.twice(Tensor::of({3})),
                         doctest::Contains("h.0: attn: doubling: no luck ["), ShapeError);
    model.block.attn.fault = Doubling::Fault::Foreign;
    CHECK_THROWS_WITH_AS(model.twice(Tensor::of({3})), "not ours", std::runtime_error);
    CHECK_THROWS_WITH_AS(model(Tensor::of({3})),
                         doctest::Contains("computes nothing from one tensor of shape [1]"), Error);
  }

  TEST_CASE("parameters come in order of registration, by dotted path") {
    const Model model;
    std::vector<std::string> names;
    for (const Parameter& parameter : model.parameters()) {
      names.push_back(parameter.name);
      CHECK(parameter.tensor->device() == Device::meta());
    }
    CHECK(names == Log{"h.0.scale", "h.0.norm.weight", "h.0.norm.bias"});
    CHECK(model.parameters()[0].tensor == &model.block.scale);
    CHECK_FALSE(model.parameters()[0].spec.decay);
    CHECK(model.adjacent_parameters() == std::vector<Log>{{"h.0.q", "h.0.k"}});
    CHECK(Linear({.in = 2, .out = 3, .bias = false}).parameters().size() == 1);
    const Linear linear({.in = 2, .out = 3});
    REQUIRE(linear.parameters().size() == 2);
    CHECK(linear.parameters()[0].tensor->shape() == Shape{3, 2});
    CHECK(linear.parameters()[0].spec.decay);
    CHECK_FALSE(linear.parameters()[1].spec.decay);
  }

  TEST_CASE("a name that a parameter or a child has already is refused, and named") {
    CHECK(Pair("bias", "norm").parameters().size() == 2);
    for (const std::string name : {"weight", "attn"}) {
      CAPTURE(name);
      const std::string message = "\"" + name + "\" is registered twice";
      CHECK_THROWS_WITH_AS(Pair(name, "norm"), doctest::Contains(message.c_str()), Error);
      CHECK_THROWS_WITH_AS(Pair("bias", name), doctest::Contains(message.c_str()), Error);
    }
  }

  TEST_CASE("training mode reaches the children, and dropout acts in it alone") {
    Model model;
    model.set_training(false);
    CHECK_FALSE(model.block.attn.training());
    model.set_training(true);
    CHECK(model.block.norm.training());
    Dropout dropout(0.5, 3);
    const Tensor x = Tensor::full({4, 100}, 1);
    CHECK(dropout(x).to_vector() != x.to_vector());
    dropout.set_training(false);
    CHECK(dropout(x).to_vector() == x.to_vector());
  }
}

}  // namespace fsdptrain::nn
