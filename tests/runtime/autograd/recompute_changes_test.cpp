#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/inplace.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/flat_parameters.h"

// What a recomputed region reads must be the same when its forward runs again.
namespace fsdptrain {
namespace {

using Tensors = std::vector<Tensor>;

// square(x * w) with a weight that is not trained.
class Frozen final : public nn::Module {
 public:
  Frozen() { register_parameter("w", w_, {.init = nn::Init::constant(3), .trainable = false}); }

 private:
  Tensor forward(const Tensor& x) override { return ops::square(ops::multiply(x, w_)); }

  Tensor w_ = nn::unplaced_parameter({2});
};

Tensor leaf(std::initializer_list<double> values) {
  Tensor x = Tensor::of(values);
  x.set_requires_grad(true);
  return x;
}

}  // namespace

TEST_SUITE("runtime/autograd/recompute_changes") {
  TEST_CASE("a frozen parameter that changes before the backward is noticed") {
    for (const DType compute : {DType::Float32, DType::BFloat16}) {
      Frozen module;
      testing::FlatParameters parameters(module, {.compute_dtype = compute});
      module.set_recompute(nn::Recompute::Full);
      Tensor x = Tensor::of({1, 2}, compute);
      x.set_requires_grad(true);
      autograd::backward(ops::sum(module(x)));
      CHECK(x.grad().to_vector() == std::vector<double>{18, 36});
      const Tensor y = module(x);
      parameters.find("w").values.mutable_values<float>()[0] = 100;
      parameters.bump_epoch();
      CHECK_THROWS_WITH_AS(autograd::backward(ops::sum(y)),
                           doctest::Contains("parameters were changed between forward and "
                                             "backward"),
                           AutogradError);
    }
  }

  TEST_CASE("a constant that changes in place before the backward is noticed, however it is seen") {
    const Tensor x = leaf({1, 2});
    Tensor w = leaf({3, 4});
    using Seen = std::function<Tensor(const Tensor&)>;
    const Seen views[] = {[](const Tensor& t) { return t.detach(); },
                          [](const Tensor& t) {
                            const autograd::NoGradGuard no_grad;
                            return ops::reshape(t, {2});
                          }};
    for (const Seen& seen : views) {
      const Tensor y = autograd::recomputed(
          {x},
          [=](const Tensors& in) { return Tensors{ops::square(ops::multiply(in[0], seen(w)))}; },
          {.name = "part", .keep = {}})[0];
      {
        const autograd::NoGradGuard no_grad;
        ops::fill_(w, 100);
      }
      CHECK_THROWS_WITH_AS(autograd::backward(ops::sum(y)), doctest::Contains("changed in place"),
                           AutogradError);
    }
  }

  TEST_CASE("hooks that come or go between forward and backward are noticed") {
    Frozen module;
    const testing::FlatParameters parameters(module, {});
    module.set_recompute(nn::Recompute::Full);
    const Tensor y = module(leaf({1, 2}));
    module.add_hooks(
        {.pre_forward = [](Tensors& in) { in[0] = ops::square(in[0]); }, .post_forward = {}});
    CHECK_THROWS_WITH_AS(autograd::backward(ops::sum(y)),
                         doctest::Contains("hooks were added or removed between forward and "
                                           "backward"),
                         AutogradError);
  }
}

}  // namespace fsdptrain
