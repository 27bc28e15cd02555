#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dispatch.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/gather.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/rotary.h"
#include "kernels/segments.h"
#include "kernels/softmax.h"
#include "tests/cuda/kernels/values.h"
#include "tests/fakecuda/kernels/device_run.h"

// Kernels that run on the CPU as operations of the fake. The kernels of this program are
// instrumented: one that touches what it does not declare is reported.
namespace fsdptrain::fakecuda {
namespace {

using testing::Array;
using testing::array_of;
using testing::Body;
using Views = std::vector<View>;

// Around 0, finite.
template <class T = float>
Array numbers(const Shape& sizes, std::uint64_t seed) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < sizes.numel(); ++i) {
    const Philox bits = philox(static_cast<std::uint64_t>(i), 0, seed);
    values.push_back(kernels::Store<T>::to(
        static_cast<kernels::OpMath<T>>(4 * to_unit_interval(bits.word[0]) - 2)));
  }
  return array_of(values, sizes, Strides::contiguous(sizes));
}

Array indices(const std::vector<std::int64_t>& values, const Shape& sizes) {
  return array_of(values, sizes, Strides::contiguous(sizes));
}

// In two orders of threads and one of chance.
void check_stand_in(const std::vector<Array>& arrays, const Body& body) {
  for (const std::uint64_t seed : {0U, 1U, 5U}) {
    CAPTURE(seed);
    testing::check_bits_of_cpu(seed, arrays, body);
  }
}

TEST_SUITE("fakecuda/kernels/stand_in") {
  TEST_CASE("softmax and its gradient touch what they declare") {
    for (const auto form : {kernels::SoftmaxForm::Probability, kernels::SoftmaxForm::Log}) {
      check_stand_in({numbers({5, 7}, 1), numbers({5, 7}, 2), numbers({5, 7}, 3)},
                     [form](const Launch& launch, const Views& v) {
                       kernels::softmax(launch, v[0], v[1], {5, 7}, form);
                       kernels::softmax_backward(launch, v[1], v[2], v[0], {5, 7}, form);
                     });
    }
  }

  TEST_CASE("cross entropy touches what it declares") {
    const Array targets = indices({3, kIgnoredTarget, 0, 6, 1}, {5});
    check_stand_in(
        {numbers({5}, 1), numbers({5}, 2), numbers({5, 7}, 3), targets, numbers({1}, 4),
         numbers({5, 7}, 5)},
        [](const Launch& launch, const Views& v) {
          const kernels::TokenLoss loss{.label_smoothing = 0.1, .z_loss = 1e-3};
          kernels::cross_entropy_forward(launch, {v[0], v[1], v[2], v[3], loss});
          kernels::cross_entropy_backward(launch, {v[5], v[2], v[1], v[3], v[4], 0.5, loss});
          kernels::cross_entropy_forward_backward(launch, {v[0], v[2], v[3], 0.5, loss});
        });
  }

  TEST_CASE("layer norm touches what it declares, with and without bias and residual") {
    for (const bool has : {false, true}) {
      const Shape shape{5, 7};
      check_stand_in(
          {numbers(shape, 1), numbers({5}, 2), numbers({5}, 3), numbers(shape, 4),
           numbers(shape, 5), numbers({7}, 6), numbers({7}, 7), numbers(shape, 8),
           numbers(shape, 9)},
          [has](const Launch& launch, const Views& v) {
            kernels::layer_norm(launch, {v[0], v[1], v[2], v[3]},
                                {v[4], v[5], v[6], has, v[7], has}, {5, 7}, 1e-5);
            kernels::layer_norm_backward(launch, v[8], v[0], v[5], {v[4], v[1], v[2]}, {5, 7});
            kernels::layer_norm_backward_weight(launch, v[6], v[0], {v[4], v[1], v[2]}, {5, 7},
                                                has);
          });
    }
  }

  TEST_CASE("RMS norm touches what it declares, with and without residual") {
    for (const bool has : {false, true}) {
      // So many rows that partial sums are combined.
      const Shape shape{300, 7};
      check_stand_in(
          {numbers(shape, 1), numbers({300}, 2), numbers(shape, 3), numbers(shape, 4),
           numbers({7}, 5), numbers(shape, 6), numbers(shape, 7), numbers({7}, 8)},
          [has](const Launch& launch, const Views& v) {
            kernels::rms_norm(launch, {v[0], v[1], v[2]}, {v[3], v[4], v[5], has}, {300, 7}, 1e-5);
            kernels::rms_norm_backward(launch, v[6], v[0], v[4], {v[3], v[1]}, {300, 7});
            kernels::rms_norm_backward_weight(launch, v[7], v[0], {v[3], v[1]}, {300, 7}, has);
          });
    }
  }

  TEST_CASE("embedding and gather touch what they declare") {
    const Array rows = indices({2, 0, 2, 4}, {4});
    for (const bool accumulate : {false, true}) {
      check_stand_in({numbers({4, 3}, 1), numbers({5, 3}, 2), rows, numbers({5, 3}, 3)},
                     [accumulate](const Launch& launch, const Views& v) {
                       kernels::embedding(launch, v[0], v[1], v[2], {5, 3, 4});
                       kernels::embedding_backward(launch, v[3], v[0], v[2], {5, 3, 4}, accumulate);
                     });
    }
    check_stand_in({numbers({2, 2}, 1), numbers({2, 5}, 2), rows},
                   [](const Launch& launch, const Views& v) {
                     const kernels::GatherShape shape{2, 5, 2, 1};
                     kernels::gather(launch, v[0], v[1], v[2], shape);
                     kernels::scatter_add(launch, v[1], v[2], v[0], shape);
                   });
  }

  TEST_CASE("sums, maxima and their places touch what they declare") {
    for (const bool accumulate : {false, true}) {
      check_stand_in(
          {numbers({3}, 1), numbers({3, 5000}, 2), numbers({2, 7}, 3), numbers({2, 150, 7}, 4)},
          [accumulate](const Launch& launch, const Views& v) {
            kernels::sum(launch, v[0], v[1], {3, 5000, 1}, {5000, accumulate});
            kernels::sum(launch, v[2], v[3], {2, 150, 7}, {1, accumulate});
          });
    }
    check_stand_in(
        {numbers({2, 7}, 1), indices(std::vector<std::int64_t>(14), {2, 7}), numbers({2, 5, 7}, 2)},
        [](const Launch& launch, const Views& v) {
          kernels::max(launch, v[0], v[2], {2, 5, 7});
          kernels::argmax(launch, v[1], v[2], {2, 5, 7});
        });
  }

  TEST_CASE("a sum of squares reads its ranges and nothing between them") {
    const std::vector<kernels::Range> ranges{{2, 40000}, {40001, 40001}, {40003, 40010}};
    check_stand_in({array_of(std::vector<double>{3}, {1}, {1}), numbers({40013}, 1)},
                   [&](const Launch& launch, const Views& v) {
                     kernels::add_sum_of_squares(launch, v[0], v[1], ranges);
                   });
    // What lies between them may have no value.
    RankContext context;
    const ContextGuard guard(context);
    DeviceRun run(0);
    const std::vector<double> zeros(4);
    const auto bytes = std::as_bytes(std::span(zeros));
    View sum = testing::view_of(zeros);
    sum.sizes[0] = 1;
    sum.data = run.upload(bytes.first(sizeof(double)));
    View x = testing::view_of(zeros);
    x.data = run.allocate(bytes.size());
    const kernels::Range first{0, 1};
    const kernels::Range last{2, 4};
    kernels::zero_segments(run.launch(), x, std::vector{first, last});
    kernels::add_sum_of_squares(run.launch(), sum, x, std::vector{first, last});
    run.synchronize();
    expect_no_reports(run.session());
  }

  TEST_CASE("rotary and dropout touch what they declare and keep what is on the host") {
    check_stand_in(
        {numbers({2, 3, 2, 4}, 1), numbers({2, 3, 2, 4}, 2), indices({0, 1, 2, 5, 6, 7}, {2, 3})},
        [](const Launch& launch, const Views& v) {
          std::vector<double> frequencies{1, 0.01};
          kernels::rotary(launch, {v[0], v[1], v[2], frequencies.data(), false});
          frequencies = {7, 7};
        });
    check_stand_in({numbers({2, 3, 5}, 1), numbers({2, 3, 5}, 2)},
                   [](const Launch& launch, const Views& v) {
                     kernels::dropout(launch, v[0], v[1],
                                      {.key = 3,
                                       .first_sample = 9,
                                       .threshold = std::uint64_t{1} << 31,
                                       .scale = 2,
                                       .samples = 2,
                                       .positions = 3,
                                       .features = 5});
                   });
  }

  TEST_CASE("products touch what they declare") {
    for (const double beta : {0.0, 1.0}) {
      check_stand_in({numbers({2, 5, 3}, 1), numbers({2, 5, 4}, 2), numbers({2, 4, 3}, 3)},
                     [beta](const Launch& launch, const Views& v) {
                       kernels::matmul(launch, v[0], v[1], v[2], beta);
                     });
      check_stand_in(
          {numbers<float>({5, 3}, 1), numbers<bfloat16>({5, 4}, 2), numbers<bfloat16>({4, 3}, 3)},
          [beta](const Launch& launch, const Views& v) {
            kernels::matmul(launch, v[0], v[1], v[2], beta);
          });
    }
    // With a depth of nothing, `out` is zeroed and the bias is added.
    for (const std::int64_t depth : {0, 4}) {
      check_stand_in({numbers({5, 3}, 1), numbers({5, depth}, 2), numbers({depth, 3}, 3),
                      numbers({3}, 4), numbers({5, 3}, 5)},
                     [](const Launch& launch, const Views& v) {
                       kernels::matmul(launch, v[0], v[1], v[2], 0,
                                       {v[3], true, kernels::Activation::GeluTanh, v[4]});
                     });
    }
  }

  TEST_CASE("attention and its gradient touch what they declare") {
    const Shape q{2, 5, 4, 8};
    const Shape k{2, 5, 2, 8};
    for (const bool has_documents : {false, true}) {
      check_stand_in(
          {numbers(q, 1), numbers({2, 4, 5}, 2), numbers(q, 3), numbers(k, 4), numbers(k, 5),
           indices({0, 0, 1, 1, 1, 0, 0, 0, 0, 2}, {2, 5}), numbers(q, 6), numbers(k, 7),
           numbers(k, 8), numbers(q, 9)},
          [has_documents](const Launch& launch, const Views& v) {
            const kernels::AttentionMask mask{
                .window = 3, .document_ids_BT = v[5], .has_documents = has_documents};
            kernels::attention_forward(launch, {v[0], v[1], v[2], v[3], v[4], 0.3, mask});
            kernels::attention_backward(
                launch, {v[6], v[7], v[8], v[9], v[2], v[3], v[4], v[0], v[1], 0.3, mask});
          });
    }
  }

  TEST_CASE("an operand that a kernel does not declare is reported") {
    RankContext context;
    const ContextGuard guard(context);
    const std::vector<std::byte> bytes(12 * sizeof(float));
    for (const bool is_read : {false, true}) {
      DeviceRun run(0);
      Array x = numbers({3, 4}, 1);
      Array y = numbers({3, 4}, 2);
      x.view.data = run.upload(bytes);
      y.view.data = run.upload(bytes);
      // One row less than the kernel takes.
      View part = is_read ? x.view : y.view;
      part.sizes[0] = 2;
      kernels::Operands operands{.writes = {is_read ? y.view : part},
                                 .reads = {is_read ? part : x.view}};
      kernels::run_on(run.launch(), "softmax", operands,
                      [x = x.view, y = y.view]<Isa>(const Launch& cpu) {
                        kernels::softmax(cpu, y, x, {3, 4}, kernels::SoftmaxForm::Log);
                      });
      run.synchronize();
      expect_reported(run.session(), ReportKind::InvalidUse,
                      {is_read ? "'softmax' reads what it does not declare: byte 32"
                               : "'softmax' writes what it does not declare: byte 32"});
    }
  }
}

}  // namespace
}  // namespace fsdptrain::fakecuda
