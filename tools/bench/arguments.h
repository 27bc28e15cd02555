#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/report.h"
#include "tools/config/config.h"

// What the command lines of benchmarks have in common.
namespace fsdptrain::tools {

// What every benchmark takes; some take the model too.
struct BenchArguments {
  bool json = false;
  int threads = 0;
  int rounds = 0;
  std::string model = "gpt2-124m";
  std::int64_t batch = 1;
  std::int64_t seq_len = 1024;
  std::string dtype = "float32";
  std::vector<std::string> overrides;
};

// Declares --json, --threads and `rounds_name`.
void add_bench_arguments(CLI::App& app, BenchArguments& arguments, const char* rounds_name,
                         int rounds);
std::shared_ptr<BenchArguments> add_bench_arguments(CLI::App& app, const char* rounds_name,
                                                    int rounds);
// Declares --model, --batch, --seq-len and --set.
void add_model_arguments(CLI::App& app, BenchArguments& arguments);
void add_dtype_argument(CLI::App& app, BenchArguments& arguments);

// Keys "section.key", and "section." for all of a section. The batch and the threads have
// arguments of their own.
using ConfigKeys = std::span<const std::string_view>;

// The configuration that the arguments stand for, checked as a file is. ConfigError for an override
// of a key that is none of `keys`: it would change nothing.
Config config_of(const BenchArguments& arguments, ConfigKeys keys);

// Prints the report of `bench`, which runs on a rank context of its own.
int run_bench(const BenchArguments& arguments, const std::function<Report()>& bench);

}  // namespace fsdptrain::tools
