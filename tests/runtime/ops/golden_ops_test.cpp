#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/nn/flat_chunk.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/embedding.h"
#include "runtime/ops/loss.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/rotary.h"
#include "runtime/ops/softmax.h"
#include "runtime/optim/adamw.h"
#include "tests/support/golden.h"

using namespace fsdptrain;
using fsdptrain::testing::Golden;

namespace {

constexpr double kTolerance = 1e-12;

Golden golden() {
  return Golden("ops.safetensors");
}

void check_equal(const Tensor& actual, const Tensor& expected) {
  REQUIRE(actual.numel() == expected.numel());
  CHECK(testing::max_difference(actual, expected) <= kTolerance * (1 + testing::max_abs(expected)));
}

Tensor leaf(const Golden& file, const std::string& name) {
  return file.tensor(name).set_requires_grad(true);
}

// y = fn(x) and its gradient, under the names op.x, op.y, op.dy and op.dx.
template <class Fn>
void check_unary(const std::string& op, const Fn& fn) {
  CAPTURE(op);
  const Golden file = golden();
  const Tensor x = leaf(file, op + ".x");
  const Tensor y = fn(x);
  check_equal(y, file.tensor(op + ".y"));
  autograd::backward(y, {.grad_output = file.tensor(op + ".dy")});
  check_equal(x.grad(), file.tensor(op + ".dx"));
}

}  // namespace

TEST_SUITE("ops against PyTorch") {
  TEST_CASE("softmax, SiLU and both forms of GELU equal PyTorch's in float64") {
    check_unary("silu", [](const Tensor& x) { return ops::silu(x); });
    check_unary("softmax", [](const Tensor& x) { return ops::softmax(x); });
    check_unary("gelu_erf", [](const Tensor& x) { return ops::gelu(x, ops::GeluForm::Erf); });
    check_unary("gelu_tanh", [](const Tensor& x) { return ops::gelu(x, ops::GeluForm::Tanh); });
  }

  TEST_CASE("layer norm equals PyTorch's in float64") {
    const Golden file = golden();
    const Tensor x = leaf(file, "layer_norm.x");
    const Tensor weight = leaf(file, "layer_norm.weight");
    const Tensor bias = leaf(file, "layer_norm.bias");
    const Tensor y = ops::layer_norm(x, weight, bias, file.number("layer_norm.eps"));
    check_equal(y, file.tensor("layer_norm.y"));
    autograd::backward(y, {.grad_output = file.tensor("layer_norm.dy")});
    check_equal(x.grad(), file.tensor("layer_norm.dx"));
    check_equal(weight.grad(), file.tensor("layer_norm.dweight"));
    check_equal(bias.grad(), file.tensor("layer_norm.dbias"));
  }

  TEST_CASE("RMS norm equals PyTorch's in float64") {
    const Golden file = golden();
    const Tensor x = leaf(file, "rms_norm.x");
    const Tensor weight = leaf(file, "rms_norm.weight");
    const Tensor y = ops::rms_norm(x, weight, file.number("rms_norm.eps"));
    check_equal(y, file.tensor("rms_norm.y"));
    autograd::backward(y, {.grad_output = file.tensor("rms_norm.dy")});
    check_equal(x.grad(), file.tensor("rms_norm.dx"));
    check_equal(weight.grad(), file.tensor("rms_norm.dweight"));
  }

  TEST_CASE("rotary embedding equals PyTorch's in float64, with Llama 3's scaling too") {
    const Golden file = golden();
    const ops::RotaryScaling llama3{
        .kind = ops::RotaryScaling::Kind::Llama3,
        .factor = file.number("rotary.factor"),
        .low_freq_factor = file.number("rotary.low_freq_factor"),
        .high_freq_factor = file.number("rotary.high_freq_factor"),
        .original_max_position = file.integer("rotary.original_max_position")};
    for (const auto& [name, scaling] :
         {std::pair("default", ops::RotaryScaling{}), std::pair("llama3", llama3)}) {
      CAPTURE(name);
      const std::string prefix = std::string("rotary.") + name;
      const Tensor expected = file.tensor(prefix + "_frequencies");
      const auto frequencies = ops::rotary_frequencies(32, file.number("rotary.theta"), scaling);
      check_equal(Tensor::from<double>(frequencies, {16}), expected);
      // PyTorch's pow() differs from ours in the last bit: 2e-9 at the largest position.
      const Tensor x = leaf(file, "rotary.x");
      const Tensor y = ops::rotary(x, file.tensor("rotary.positions"), expected.values<double>());
      check_equal(y, file.tensor(prefix + "_y"));
      autograd::backward(y, {.grad_output = file.tensor("rotary.dy")});
      check_equal(x.grad(), file.tensor(prefix + "_dx"));
    }
  }

  TEST_CASE("causal attention equals PyTorch's in float64") {
    const Golden file = golden();
    const Tensor q = leaf(file, "attention.q");
    const Tensor k = leaf(file, "attention.k");
    const Tensor v = leaf(file, "attention.v");
    const ops::AttentionOutput output = ops::attention(q, k, v);
    check_equal(output.out, file.tensor("attention.out"));
    check_equal(output.log_sum_exp, file.tensor("attention.lse"));
    autograd::backward(output.out, {.grad_output = file.tensor("attention.dout")});
    check_equal(q.grad(), file.tensor("attention.dq"));
    check_equal(k.grad(), file.tensor("attention.dk"));
    check_equal(v.grad(), file.tensor("attention.dv"));
  }

  TEST_CASE("grouped heads, documents and a window equal PyTorch's attention in float64") {
    const Golden file = golden();
    const Tensor ids = file.tensor("masked_attention.document_ids");
    for (const std::string name : {"documents", "window"}) {
      CAPTURE(name);
      const Tensor q = leaf(file, "masked_attention.q");
      const Tensor k = leaf(file, "masked_attention.k");
      const Tensor v = leaf(file, "masked_attention.v");
      const std::int64_t window = name == "window" ? file.integer("masked_attention.window") : 0;
      const Tensor out = ops::attention(q, k, v, {.document_ids = ids, .window = window}).out;
      check_equal(out, file.tensor("masked_attention." + name + "_out"));
      autograd::backward(out, {.grad_output = file.tensor("masked_attention.dout")});
      check_equal(q.grad(), file.tensor("masked_attention." + name + "_dq"));
      check_equal(k.grad(), file.tensor("masked_attention." + name + "_dk"));
      check_equal(v.grad(), file.tensor("masked_attention." + name + "_dv"));
    }
  }

  TEST_CASE("embedding and cross entropy equal PyTorch's in float64") {
    const Golden file = golden();
    const Tensor weight = leaf(file, "embedding.weight");
    const Tensor y = ops::embedding(weight, file.tensor("embedding.indices"));
    check_equal(y, file.tensor("embedding.y"));
    autograd::backward(y, {.grad_output = file.tensor("embedding.dy")});
    check_equal(weight.grad(), file.tensor("embedding.dweight"));

    const Tensor logits = leaf(file, "cross_entropy.logits");
    ops::CrossEntropyOptions options;
    options.ignore_index = file.integer("cross_entropy.ignore_index");
    options.reduction = ops::Reduction::Sum;
    const Tensor loss = ops::cross_entropy(logits, file.tensor("cross_entropy.targets"), options);
    check_equal(loss, file.tensor("cross_entropy.loss"));
    autograd::backward(loss);
    check_equal(logits.grad(), file.tensor("cross_entropy.dlogits"));
  }

  TEST_CASE("cross entropy with label smoothing equals PyTorch's mean in float64") {
    const Golden file = golden();
    const Tensor logits = leaf(file, "label_smoothing.logits");
    const Tensor loss =
        ops::cross_entropy(logits, file.tensor("label_smoothing.targets"),
                           {.ignore_index = file.integer("cross_entropy.ignore_index"),
                            .label_smoothing = file.number("label_smoothing.smoothing")});
    check_equal(loss, file.tensor("label_smoothing.loss"));
    autograd::backward(loss);
    check_equal(logits.grad(), file.tensor("label_smoothing.dlogits"));
  }

  TEST_CASE("one AdamW step from given moments equals PyTorch's in float64") {
    const Golden file = golden();
    const auto flat = [&](const std::string& name) {
      const Tensor tensor = file.tensor("adamw." + name);
      return tensor.alias({tensor.numel()}, {1}, 0);
    };
    nn::FlatChunk chunk;
    chunk.parameters = flat("param");
    chunk.gradients = flat("grad");
    nn::Segment segment;
    segment.end = chunk.parameters.numel();
    segment.step = file.integer("adamw.step") - 1;
    chunk.segments = {segment};
    std::vector<nn::FlatChunk> chunks{chunk};
    optim::AdamW optimizer(chunks, {.beta1 = file.number("adamw.beta1"),
                                    .beta2 = file.number("adamw.beta2"),
                                    .eps = file.number("adamw.eps"),
                                    .weight_decay = file.number("adamw.weight_decay")});
    for (const optim::State& state : optimizer.states()) {
      const Tensor values = flat(state.name);
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        Tensor(state.values).set_item(i, values.item(i));
      }
    }
    optimizer.step(chunks, file.number("adamw.lr"), {});
    check_equal(chunk.parameters, flat("new_param"));
    check_equal(optimizer.states()[0].values, flat("new_exp_avg"));
    check_equal(optimizer.states()[1].values, flat("new_exp_avg_sq"));
  }
}
