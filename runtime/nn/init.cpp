#include "runtime/nn/init.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/functors/math.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"

namespace fsdptrain::nn {
namespace {

// FNV-1a, so that each parameter has random numbers of its own.
std::uint64_t key_of(std::string_view name, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  const Philox mixed = philox(hash, 0x696e6974, seed);
  return (static_cast<std::uint64_t>(mixed.word[1]) << 32) | mixed.word[0];
}

template <std::size_t terms>
double polynomial(const double (&coefficients)[terms], double x) {
  double sum = coefficients[terms - 1];
  for (std::size_t i = terms - 1; i-- > 0;) {
    sum = sum * x + coefficients[i];
  }
  return sum;
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
void fill_normal(std::span<T> values, std::uint64_t key, double standard_deviation,
                 std::int64_t first_element) {
  struct Work {
    std::span<T> values;
    std::uint64_t key;
    double standard_deviation;
    std::int64_t first_element;
  } work{values, key, standard_deviation, first_element};
  constexpr std::int64_t kBlock = 65536;
  const auto count = static_cast<std::int64_t>(values.size());
  current_context().pool().run(
      (count + kBlock - 1) / kBlock,
      [](void* context, std::int64_t block, int) {
        const auto& w = *static_cast<Work*>(context);
        const std::int64_t begin = block * kBlock;
        const std::int64_t end =
            std::min<std::int64_t>(static_cast<std::int64_t>(w.values.size()), begin + kBlock);
        for (std::int64_t i = begin; i < end; ++i) {
          const auto element = static_cast<std::uint64_t>(w.first_element + i);
          const std::uint32_t word = philox(element / 4, 0, w.key).word[element % 4];
          w.values[static_cast<std::size_t>(i)] =
              rounded<T>(w.standard_deviation * inverse_normal(to_unit_interval(word)));
        }
      },
      &work);
}

}  // namespace

// Products and sums are rounded one by one here (no fused multiply-add), so that every machine
// computes the same bits.
double inverse_normal(double p) {
  constexpr double kCentralNumerator[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                          1.9715909503065514427e3, 1.3731693765509461125e4,
                                          4.5921953931549871457e4, 6.7265770927008700853e4,
                                          3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr double kCentralDenominator[] = {1.0,
                                            4.2313330701600911252e1,
                                            6.8718700749205790830e2,
                                            5.3941960214247511077e3,
                                            2.1213794301586595867e4,
                                            3.9307895800092710610e4,
                                            2.8729085735721942674e4,
                                            5.2264952788528545610e3};
  constexpr double kTailNumerator[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                       5.76949722146069140550e0,  3.64784832476320460504e0,
                                       1.27045825245236838258e0,  2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kTailDenominator[] = {1.0,
                                         2.05319162663775882187e0,
                                         1.67638483018380384940e0,
                                         6.89767334985100004550e-1,
                                         1.48103976427480074590e-1,
                                         1.51986665636164571966e-2,
                                         5.47593808499534494600e-4,
                                         1.05075007164441684324e-9};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kCentralNumerator, r) / polynomial(kCentralDenominator, r);
  }
  const double r = std::sqrt(-kernels::math::log(q < 0 ? p : 1 - p)) - 1.6;
  const double x = polynomial(kTailNumerator, r) / polynomial(kTailDenominator, r);
  return q < 0 ? -x : x;
}

void initialize(const Tensor& values, std::string_view name, const Init& init, std::uint64_t seed,
                std::int64_t first_element) {
  if (values.device() == Device::meta()) {
    return;
  }
  if (values.device() != Device::cpu()) {
    const Tensor host = pinned(values.shape(), values.dtype(), values.device());
    initialize(host, name, init, seed, first_element);
    copy_async(values, host);
    return;
  }
  const std::uint64_t key = key_of(name, seed);
  dispatch_floating(values.dtype(), [&]<class T>() {
    const std::span<T> span = values.mutable_values<T>();
    switch (init.kind) {
      case Init::Kind::Constant:
        std::ranges::fill(span, rounded<T>(init.value));
        return;
      case Init::Kind::Normal:
        return fill_normal(span, key, init.value, first_element);
    }
  });
}

}  // namespace fsdptrain::nn
