#include "models/common/placed_module.h"

#include <doctest/doctest.h>

#include "models/common/decoder.h"
#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"

using namespace fsdptrain;

namespace {

// x * (3 positions + ids)
class Probe final : public models::PlacedModule {
 private:
  Tensor forward_at(const Tensor& x_BTC, const models::TokenPlaces& places) override {
    Tensor factors = Tensor::zeros(x_BTC.shape(), DType::Float64);
    for (std::int64_t i = 0; i < factors.numel(); ++i) {
      factors.set_item(i, 3 * places.positions_BT.item(i) + places.document_ids_BT.item(i));
    }
    return ops::multiply(x_BTC, factors);
  }
};

Tensor integers(std::initializer_list<double> values) {
  Tensor tensor = Tensor::zeros({1, static_cast<std::int64_t>(values.size())}, DType::Int64);
  std::int64_t index = 0;
  for (const double value : values) {
    tensor.set_item(index++, value);
  }
  return tensor;
}

}  // namespace

TEST_SUITE("models/common") {
  TEST_CASE("places arrive as such, go through the hooks, and are there in a recomputation") {
    for (const nn::Recompute policy : {nn::Recompute::None, nn::Recompute::Full}) {
      Probe probe;
      probe.set_recompute(policy);
      std::size_t num_inputs = 0;
      probe.add_hooks({.pre_forward =
                           [&](nn::Module::Tensors& inputs) {
                             num_inputs = inputs.size();
                             for (const Tensor& input : inputs) {
                               CHECK(input.defined());
                             }
                             // A hook may replace what it sees.
                             inputs[2] = integers({7, 7});
                           },
                       .post_forward = {}});
      Tensor x = Tensor::full({1, 2, 1}, 2, DType::Float64);
      x.set_requires_grad(true);
      const Tensor y = probe(x, {integers({10, 20}), integers({1, 2})});
      CHECK(num_inputs == 3);
      CHECK(y.to_vector() == std::vector<double>{2 * 37, 2 * 67});
      autograd::backward(ops::sum(y));
      CHECK(x.grad().to_vector() == std::vector<double>{37, 67});
    }
  }

  TEST_CASE("rows of one document count their positions from 0") {
    const models::TokenRows rows = models::one_document(Tensor::zeros({2, 3}, DType::Int64));
    CHECK(rows.positions_BT.to_vector() == std::vector<double>{0, 1, 2, 0, 1, 2});
    CHECK(rows.document_ids_BT.to_vector() == std::vector<double>(6, 0));
    CHECK(rows.places().positions_BT.storage() == rows.positions_BT.storage());
    CHECK(rows.places().document_ids_BT.storage() == rows.document_ids_BT.storage());
    CHECK(models::one_document(Tensor::zeros({0, 3}, DType::Int64)).positions_BT.numel() == 0);
    CHECK_THROWS_WITH_AS(models::one_document(Tensor::zeros({3}, DType::Int64)),
                         doctest::Contains("tokens: must be [batch, position], got [3]"),
                         ShapeError);
  }
}
