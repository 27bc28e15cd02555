#include <cmath>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "kernels/rotary.h"
#include "kernels/softmax.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "runtime/ops/rotary.h"
#include "runtime/tensor/tensor.h"
#include "tools/bench/bench.h"
#include "tools/bench/memory_work.h"
#include "tools/bench/pool_cost.h"
#include "tools/bench/step_model.h"
#include "tools/bench/timing.h"
#include "tools/machine/fma_roof.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {
namespace {

// One thing at the sizes of a model: its operands live as long as this.
class OpsBench {
 public:
  explicit OpsBench(const Config& config)
      : batch_(config.train.micro_batch),
        seq_len_(config.train.seq_len),
        tokens_(batch_ * seq_len_),
        width_(config.model.embed_dim),
        heads_(config.model.num_heads),
        vocab_(config.model.vocab_size),
        dtype_(compute_dtype(config.train)),
        each_(static_cast<double>(size_of(dtype_))) {}

  Report run(int rounds) {
    Report report = new_report("ops");
    measure_memory_work(report, memory_works(), rounds);
    add_attention(report, rounds);
    report.figures.push_back({"pool_region", measure_pool_region() * 1e6, "us"});
    return report;
  }

 private:
  std::vector<MemoryWork> memory_works();
  void add_activations(std::vector<MemoryWork>& works);
  void add_norms(std::vector<MemoryWork>& works);
  void add_head(std::vector<MemoryWork>& works);
  void add_embeddings(std::vector<MemoryWork>& works);
  void add_rotary(std::vector<MemoryWork>& works);
  void add_attention(Report& report, int rounds);

  // Kept for the kernels that are timed.
  View tensor(const Shape& shape, double value = 0.5) {
    return keep(Tensor::full(shape, value, dtype_));
  }
  View keep(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.back().view();
  }

  std::int64_t batch_;
  std::int64_t seq_len_;
  std::int64_t tokens_;
  std::int64_t width_;
  std::int64_t heads_;
  std::int64_t vocab_;
  DType dtype_;
  double each_;
  Launch launch_ = current_context().launch(Device::cpu());
  std::vector<Tensor> tensors_;
  std::vector<double> frequencies_;
};

std::vector<MemoryWork> OpsBench::memory_works() {
  std::vector<MemoryWork> works;
  add_activations(works);
  add_norms(works);
  add_head(works);
  add_embeddings(works);
  add_rotary(works);
  return works;
}

void OpsBench::add_activations(std::vector<MemoryWork>& works) {
  const View x = tensor({tokens_, 4 * width_});
  const View dy = tensor({tokens_, 4 * width_});
  const View y = tensor({tokens_, 4 * width_});
  const double bytes = each_ * static_cast<double>(tokens_ * 4 * width_);
  works.push_back(
      {"gelu", 2 * bytes, [=, this] { kernels::map(launch_, kernels::GeluTanh{}, y, x); }});
  works.push_back({"gelu_backward", 3 * bytes,
                   [=, this] { kernels::map(launch_, kernels::GeluTanhBackward{}, y, dy, x); }});
  // Gates and ups of half the width.
  const Shape half{tokens_, 2 * width_};
  const View product = tensor(half);
  const View gate = tensor(half);
  const View up = tensor(half);
  works.push_back({"silu_mul", 1.5 * bytes,
                   [=, this] { kernels::map(launch_, kernels::SiluMul{}, product, gate, up); }});
  works.push_back({"silu_mul_backward", 2 * bytes, [=, this] {
                     kernels::map(launch_, kernels::SiluMulBackward{}, product, gate, gate, up);
                   }});
  works.push_back(
      {"add", 3 * bytes, [=, this] { kernels::map(launch_, kernels::Add{}, y, dy, x); }});
  const View bias = tensor({4 * width_});
  works.push_back({"bias_gradient", bytes, [=, this] {
                     kernels::sum(launch_, bias, dy, {1, tokens_, 4 * width_});
                   }});
  const kernels::DropoutMask mask{.key = 1,
                                  .threshold = std::uint64_t{1} << 29,
                                  .scale = 8.0 / 7,
                                  .samples = batch_,
                                  .positions = seq_len_,
                                  .features = 4 * width_};
  works.push_back({"dropout", 2 * bytes, [=, this] { kernels::dropout(launch_, y, x, mask); }});
}

void OpsBench::add_norms(std::vector<MemoryWork>& works) {
  const kernels::NormShape shape{tokens_, width_};
  const View x = tensor({tokens_, width_});
  const View dy = tensor({tokens_, width_});
  const View y = tensor({tokens_, width_});
  const View weight = tensor({width_});
  const View bias = tensor({width_});
  const View mean = keep(Tensor::zeros({tokens_}));
  const View rstd = keep(Tensor::full({tokens_}, 1));
  const double bytes = each_ * static_cast<double>(tokens_ * width_);
  works.push_back(
      {"layer_norm", 2 * bytes, [=, this] {
         kernels::layer_norm(launch_, {y, mean, rstd}, {x, weight, bias, true}, shape, 1e-5);
       }});
  works.push_back({"layer_norm_backward", 3 * bytes, [=, this] {
                     kernels::layer_norm_backward(launch_, y, dy, weight, {x, mean, rstd}, shape);
                   }});
  works.push_back(
      {"layer_norm_backward_weight", 2 * bytes, [=, this] {
         kernels::layer_norm_backward_weight(launch_, weight, dy, {x, mean, rstd}, shape, false);
       }});
  works.push_back({"rms_norm", 2 * bytes, [=, this] {
                     kernels::rms_norm(launch_, {y, rstd}, {x, weight}, shape, 1e-5);
                   }});
  works.push_back({"rms_norm_backward", 3 * bytes, [=, this] {
                     kernels::rms_norm_backward(launch_, y, dy, weight, {x, rstd}, shape);
                   }});
  works.push_back(
      {"rms_norm_backward_weight", 2 * bytes, [=, this] {
         kernels::rms_norm_backward_weight(launch_, weight, dy, {x, rstd}, shape, false);
       }});
  const View scores = tensor({tokens_, seq_len_});
  const View probabilities = tensor({tokens_, seq_len_});
  works.push_back({"softmax", 2 * each_ * static_cast<double>(tokens_ * seq_len_), [=, this] {
                     kernels::softmax(launch_, probabilities, scores, {tokens_, seq_len_},
                                      kernels::SoftmaxForm::Probability);
                   }});
}

void OpsBench::add_head(std::vector<MemoryWork>& works) {
  const std::int64_t rows = std::min(tokens_, ops::kHeadChunk);
  const View logits = tensor({rows, vocab_});
  const View losses = keep(Tensor::zeros({rows}));
  const View targets = keep(Tensor::zeros({rows}, DType::Int64));
  works.push_back(
      {"cross_entropy_forward_backward", 2 * each_ * static_cast<double>(rows * vocab_), [=, this] {
         kernels::cross_entropy_forward_backward(
             launch_, {.losses = losses, .logits = logits, .targets = targets});
       }});
}

void OpsBench::add_embeddings(std::vector<MemoryWork>& works) {
  const data::Batch batch = random_batch(batch_, seq_len_, vocab_);
  const View indices = keep(Tensor::from<std::int64_t>(batch.tokens, {tokens_}));
  const View table = tensor({vocab_, width_});
  const View y = tensor({tokens_, width_});
  const kernels::EmbeddingShape shape{vocab_, width_, tokens_};
  const double bytes = each_ * static_cast<double>(tokens_ * width_);
  works.push_back({"embedding", 2 * bytes,
                   [=, this] { kernels::embedding(launch_, y, table, indices, shape); }});
  works.push_back({"embedding_backward", 3 * bytes, [=, this] {
                     kernels::embedding_backward(launch_, table, y, indices, shape, true);
                   }});
}

void OpsBench::add_rotary(std::vector<MemoryWork>& works) {
  const std::int64_t head_size = width_ / heads_;
  const Shape shape{batch_, seq_len_, heads_, head_size};
  const View x = tensor(shape);
  const View y = tensor(shape);
  const View positions = keep(Tensor::full({batch_, seq_len_}, 1000, DType::Int64));
  frequencies_ = ops::rotary_frequencies(head_size, 10000);
  works.push_back({"rotary", 2 * each_ * static_cast<double>(tokens_ * width_), [=, this] {
                     kernels::rotary(launch_, {.out_BTHD = y,
                                               .in_BTHD = x,
                                               .positions_BT = positions,
                                               .frequencies = frequencies_.data()});
                   }});
}

void OpsBench::add_attention(Report& report, int rounds) {
  const std::int64_t head_size = width_ / heads_;
  const Shape shape{batch_, seq_len_, heads_, head_size};
  const auto heads = [&] { return tensor(shape, 0.1); };
  const View log_sum_exp = keep(Tensor::zeros({batch_, heads_, seq_len_}));
  const double scale = 1 / std::sqrt(static_cast<double>(head_size));
  const kernels::AttentionForward forward{.out_BTHD = heads(),
                                          .log_sum_exp_BHT = log_sum_exp,
                                          .q_BTHD = heads(),
                                          .k_BSGD = heads(),
                                          .v_BSGD = heads(),
                                          .scale = scale};
  const kernels::AttentionBackward backward{.dq_BTHD = heads(),
                                            .dk_BSGD = heads(),
                                            .dv_BSGD = heads(),
                                            .dout_BTHD = heads(),
                                            .q_BTHD = forward.q_BTHD,
                                            .k_BSGD = forward.k_BSGD,
                                            .v_BSGD = forward.v_BSGD,
                                            .out_BTHD = forward.out_BTHD,
                                            .log_sum_exp_BHT = log_sum_exp,
                                            .scale = scale};
  const FmaRoof fma = measure_fma_roof();
  const auto timed = [](const auto& run) {
    const Stopwatch stopwatch;
    run();
    return stopwatch.seconds();
  };
  const auto times = interleave(
      "bench ops",
      {{"attention", [&] { return timed([&] { kernels::attention_forward(launch_, forward); }); }},
       {"attention_backward",
        [&] { return timed([&] { kernels::attention_backward(launch_, backward); }); }}},
      rounds);
  // Half of the pairs of positions, 2 operations for each feature of a product: 2 products
  // forward, 5 backward.
  const double product = static_cast<double>(tokens_) * static_cast<double>(seq_len_ * width_);
  const auto add = [&](const char* name, double flops, double seconds) {
    report.figures.push_back({name, flops / seconds * 1e-9, "GFLOP/s"});
    report.figures.push_back(
        {std::string(name) + ".of_fma_peak", flops / seconds / fma.all_threads, "share"});
  };
  report.figures.push_back({"fma_peak", fma.all_threads * 1e-9, "GFLOP/s"});
  add("attention", 2 * product, median(times[0]));
  add("attention_backward", 5 * product, median(times[1]));
}

}  // namespace

Report bench_ops(const Config& config, int rounds) {
  return OpsBench(config).run(rounds);
}

}  // namespace fsdptrain::tools
