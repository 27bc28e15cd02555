#include <fmt/format.h>
#include <string>
#include <vector>

#include "runtime/base/rank_context.h"
#include "tools/bench/bench.h"
#include "tools/bench/products.h"
#include "tools/bench/timing.h"
#include "tools/machine/fma_roof.h"

namespace fsdptrain::tools {
namespace {

// Few products of a kind are enough for one sample, when there are more samples.
constexpr std::int64_t kProductsPerSample = 4;

std::vector<Product> sampled_products(const Config& config) {
  std::vector<Product> products =
      step_products(config.model, config.train.micro_batch * config.train.seq_len);
  for (Product& product : products) {
    product.count = std::min(product.count, kProductsPerSample);
  }
  return products;
}

// Sums over a whole step.
struct Total {
  double flops = 0;
  double ours = 0;
  double library = 0;
};

}  // namespace

Report bench_gemm(const Config& config, int rounds) {
  RankContext& context = current_context();
  const Launch launch = context.launch(Device::cpu());
  const int threads = context.pool().threads();
  const FmaRoof fma = measure_fma_roof();
  const std::vector<Product> products = sampled_products(config);
  ProductOperands operands(products);

  std::vector<Contestant> contestants;
  for (const Product& product : products) {
    contestants.push_back({product.name, [&] { return run_ours(launch, product, operands); }});
    if (has_library_gemm()) {
      contestants.push_back(
          {product.name, [&] { return run_library(product, operands, threads); }});
    }
  }
  const auto times = interleave("bench gemm", contestants, rounds);

  Report report = new_report("gemm");
  report.figures = {{"fma_peak_1_thread", fma.one_thread * 1e-9, "GFLOP/s"},
                    {"fma_peak", fma.all_threads * 1e-9, "GFLOP/s"}};
  const auto add_rates = [&](const std::string& name, double flops, double ours, double library) {
    report.figures.push_back({name + ".ours", flops / ours * 1e-9, "GFLOP/s"});
    report.figures.push_back({name + ".of_fma_peak", flops / ours / fma.all_threads, "share"});
    if (has_library_gemm()) {
      report.figures.push_back({name + ".library", flops / library * 1e-9, "GFLOP/s"});
      report.figures.push_back({name + ".of_library", library / ours, "share"});
    }
  };
  const std::vector<Product> whole =
      step_products(config.model, config.train.micro_batch * config.train.seq_len);
  Total total;
  const std::size_t stride = has_library_gemm() ? 2 : 1;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    const double ours = median(times[i * stride]);
    const double library = has_library_gemm() ? median(times[i * stride + 1]) : 0;
    add_rates(fmt::format("{}.{}", product.name, name_of(product.form)), product.flops(), ours,
              library);
    const double scale = static_cast<double>(whole[i].count) / static_cast<double>(product.count);
    total.flops += scale * product.flops();
    total.ours += scale * ours;
    total.library += scale * library;
  }
  add_rates("step", total.flops, total.ours, total.library);
  return report;
}

}  // namespace fsdptrain::tools
