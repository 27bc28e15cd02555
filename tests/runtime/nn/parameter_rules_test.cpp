#include "runtime/nn/parameter_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"
#include "runtime/nn/linear.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"
#include "tests/support/contexts.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/grad_check.h"

namespace fsdptrain::nn {
namespace {

using testing::FlatParameters;
using testing::random_tensor;

// Two linear layers of different sizes under the names of blocks.
class Net final : public Module {
 public:
  Net() {
    register_module("h.0", first);
    register_module("h.1", second);
  }

  Linear first{{.in = 3, .out = 5}};
  Linear second{{.in = 5, .out = 2}};

 private:
  Tensor forward(const Tensor& x) override { return second(ops::square(first(x))); }
};

ParameterSpec spec_of(std::span<const ParameterRule> rules, const std::string& name) {
  const Net net;
  const auto parameters = with_rules(net.parameters(), rules);
  return std::ranges::find(parameters, name, &Parameter::name)->spec;
}

void backward_of(Net& net, DType dtype, std::uint64_t seed) {
  autograd::backward(ops::sum(ops::square(net(random_tensor({4, 3}, seed, 1, dtype)))));
}

// PyTorch's AdamW and SGD, one element at a time in double.
struct Naive {
  std::vector<double> values;
  std::vector<double> m = std::vector<double>(values.size());
  std::vector<double> v = std::vector<double>(values.size());

  void adamw(const std::vector<double>& gradients, double lr, double decay, int step) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * gradients[i];
      v[i] = 0.999 * v[i] + 0.001 * gradients[i] * gradients[i];
      values[i] -= lr * decay * values[i];
      values[i] -= lr * (m[i] / (1 - std::pow(0.9, step))) /
                   (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-8);
    }
  }

  void sgd(const std::vector<double>& gradients, double lr, double decay) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      m[i] = 0.9 * m[i] + gradients[i] + decay * values[i];
      values[i] -= lr * m[i];
    }
  }
};

}  // namespace

TEST_SUITE("runtime/nn/parameter_rules") {
  TEST_CASE("* stands for any text, ? for one character, the rest for itself") {
    struct Case {
      const char* pattern;
      const char* name;
      bool fits;
    };
    for (const auto& [pattern, name, fits] :
         std::initializer_list<Case>{{"wte.weight", "wte.weight", true},
                                     {"wte.weight", "wte.weights", false},
                                     {"wte.weight", "h.wte.weight", false},
                                     {"wte?weight", "wte.weight", true},
                                     {"", "", true},
                                     {"", "a", false},
                                     {"*", "", true},
                                     {"?", "", false},
                                     {"*", "h.0.ln_1.bias", true},
                                     {"*.bias", "h.0.ln_1.bias", true},
                                     {"*.bias", ".bias", true},
                                     {"*.bias", "bias", false},
                                     {"h.*.bias", "h.0.ln_1.bias", true},
                                     {"h.?.*", "h.0.bias", true},
                                     {"h.?.*", "h.10.bias", false},
                                     {"*ab", "aab", true},
                                     {"*a*b", "xaabab", true},
                                     {"*a*b", "xaaba", false},
                                     {"**", "ab", true},
                                     {"a**b?", "abb", true},
                                     {"h.1*", "h.0.x1", false},
                                     {"[h].0", "h.0", false},
                                     {"*.0.*", "h.10.x", false},
                                     {"a*a", "a", false}}) {
      CAPTURE(pattern);
      CAPTURE(name);
      CHECK(matches(pattern, name) == fits);
    }
  }

  TEST_CASE("of two rules that set the same the later wins, and each sets only what it says") {
    const std::vector<ParameterRule> rules{
        {.pattern = "*", .decay = false, .lr_scale = 0.5, .trainable = false},
        {.pattern = "h.1.*", .lr_scale = 0.25},
        {.pattern = "*.bias", .trainable = true}};
    CHECK_FALSE(spec_of(rules, "h.0.weight").decay);
    CHECK(spec_of(rules, "h.0.weight").lr_scale == 0.5);
    CHECK_FALSE(spec_of(rules, "h.0.weight").trainable);
    CHECK(spec_of(rules, "h.1.bias").lr_scale == 0.25);
    CHECK(spec_of(rules, "h.1.bias").trainable);
    CHECK_FALSE(spec_of(rules, "h.1.bias").decay);
    CHECK(spec_of({}, "h.0.weight").lr_scale == 1);
  }

  TEST_CASE("a rule that matches nothing is an error that names the nearest parameters") {
    const std::vector<ParameterRule> rules{{.pattern = "h.*.wieght", .decay = false}};
    CHECK_THROWS_WITH_AS(spec_of(rules, "h.0.weight"),
                         doctest::Contains("parameter rules: \"h.*.wieght\" matches no parameter: "
                                           "did you mean h.*.weight, h.*.bias?"),
                         ConfigError);
  }

  TEST_CASE("rules that freeze everything are an error with the cure") {
    const std::vector<ParameterRule> rules{{.pattern = "*.weight", .trainable = false},
                                           {.pattern = "*.bias", .trainable = false}};
    CHECK_THROWS_WITH_AS(
        spec_of(rules, "h.0.weight"),
        doctest::Contains("freeze all 4 parameters, by \"*.weight\", \"*.bias\": leave one to "
                          "train, for example by a later rule with freeze = false"),
        ConfigError);
  }

  TEST_CASE("a frozen parameter gets no gradient and no update, others the same as before") {
    std::vector<std::vector<double>> gradients;
    for (const bool frozen : {false, true}) {
      Net net;
      std::vector<ParameterRule> rules;
      if (frozen) {
        rules = {{.pattern = "h.0.weight", .trainable = false},
                 {.pattern = "h.1.bias", .trainable = false}};
      }
      FlatParameters owner(net, {.dtype = DType::Float64, .seed = 3, .rules = rules});
      optim::AdamW optimizer(owner.chunks(), {});
      const auto before = owner.find("h.0.weight").values.to_vector();
      backward_of(net, DType::Float64, 1);
      gradients.push_back(owner.find("h.1.weight").gradient.to_vector());
      owner.mark_active_segments();
      optimizer.step(owner.chunks(), 0.1, {});
      owner.bump_epoch();
      CHECK((owner.find("h.0.weight").values.to_vector() == before) == frozen);
      CHECK(owner.find("h.0.weight").gradient.defined() != frozen);
      CHECK(owner.find("h.0.bias").gradient.defined());
      CHECK(owner.chunks().size() == 1);
      CHECK(owner.chunks()[0].segments.size() == (frozen ? 2 : 4));
      CHECK(owner.num_parameters() == 15 + 5 + 10 + 2);
    }
    CHECK(gradients[0] == gradients[1]);
  }

  TEST_CASE("frozen bfloat16 is stored as such, and seen in the compute dtype") {
    const std::vector<ParameterRule> rules{
        {.pattern = "h.1.*", .trainable = false, .dtype = DType::BFloat16}};
    for (const DType compute : {DType::Float32, DType::BFloat16}) {
      CAPTURE(name_of(compute));
      Net net;
      FlatParameters owner(net, {.compute_dtype = compute, .seed = 3, .rules = rules});
      const Tensor stored = owner.find("h.1.weight").values;
      CHECK(stored.dtype() == DType::BFloat16);
      CHECK(owner.find("h.0.weight").values.dtype() == DType::Float32);
      const Tensor expected = Tensor::zeros({2, 5}, DType::BFloat16);
      initialize(expected, "h.1.weight", Init::normal(0.02), 3);
      CHECK(stored.to_vector() == expected.to_vector());
      const Tensor& seen = *net.second.parameters()[0].tensor;
      CHECK(seen.dtype() == compute);
      CHECK((seen.storage() == stored.storage()) == (compute == DType::BFloat16));
      backward_of(net, compute, 1);
      CHECK(seen.to_vector() == stored.to_vector());
      CHECK(owner.find("h.0.weight").gradient.dtype() == DType::Float32);
      // A write is seen by the next forward, and noticed by a backward that is under way.
      const Tensor pending = ops::sum(net(random_tensor({4, 3}, 1, 1, compute)));
      Tensor(stored).set_item(0, 42);
      owner.bump_epoch();
      net(random_tensor({4, 3}, 1, 1, compute));
      CHECK(seen.item(0) == 42);
      CHECK_THROWS_WITH_AS(autograd::backward(pending),
                           doctest::Contains("saved for backward was changed in place"),
                           AutogradError);
    }
  }

  TEST_CASE("optimizers obey learning rate and decay of every parameter, over several steps") {
    const std::vector<ParameterRule> rules{{.pattern = "h.0.*", .lr_scale = 0.125},
                                           {.pattern = "h.1.weight", .decay = false},
                                           {.pattern = "h.1.bias", .decay = true, .lr_scale = 0}};
    for (const bool adamw : {true, false}) {
      CAPTURE(adamw);
      Net net;
      FlatParameters owner(net, {.dtype = DType::Float64, .seed = 3, .rules = rules});
      std::vector<Naive> naive;
      for (const auto& named : owner.named()) {
        naive.push_back({named.values.to_vector()});
      }
      optim::AdamW first(owner.chunks(), {.weight_decay = 0.3});
      optim::Sgd second(owner.chunks(), {.momentum = 0.9, .weight_decay = 0.3});
      for (int step = 1; step <= 3; ++step) {
        owner.zero_grad();
        backward_of(net, DType::Float64, static_cast<std::uint64_t>(step));
        owner.mark_active_segments();
        for (std::size_t i = 0; i < naive.size(); ++i) {
          const auto& named = owner.named()[i];
          const bool in_first = named.name.starts_with("h.0.");
          const double lr = 0.01 * (in_first ? 0.125 : named.name == "h.1.bias" ? 0 : 1);
          const double decay = named.name == "h.0.weight" || named.name == "h.1.bias" ? 0.3 : 0;
          if (adamw) {
            naive[i].adamw(named.gradient.to_vector(), lr, decay, step);
          } else {
            naive[i].sgd(named.gradient.to_vector(), lr, decay);
          }
        }
        optim::Optimizer& optimizer = adamw ? static_cast<optim::Optimizer&>(first) : second;
        optimizer.step(owner.chunks(), 0.01, {});
        owner.bump_epoch();
        for (std::size_t i = 0; i < naive.size(); ++i) {
          CAPTURE(owner.named()[i].name);
          testing::expect_close(owner.named()[i].values, naive[i].values, 1e-14);
        }
      }
    }
  }
}

}  // namespace fsdptrain::nn
