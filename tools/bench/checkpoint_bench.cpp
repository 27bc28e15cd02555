#include <algorithm>
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/checkpoint_work.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/timing.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {
namespace {

constexpr double kSaveFloor = 0.85;
constexpr double kStallCeiling = 1.2;
constexpr double kLargestStallCeiling = 2;
constexpr double kLoadFloor = 0.7;
constexpr double kVerifyFloor = 0.6;
constexpr double kMemoryBesideStaging = 64 * kMiB;

}  // namespace

Report bench_checkpoint(const Config& config, const std::filesystem::path& folder, int rounds) {
  CheckpointWork work(config, folder);
  const double before = resident_bytes();
  work.save();
  const double grown = std::max(peak_resident_bytes() - std::max(before, resident_bytes()), 0.0);
  // Disks are slower behind a burst of writes: a save has a plain write before it and one behind
  // it.
  std::vector<std::vector<double>> seconds =
      interleave("checkpoint",
                 {{"write", [&] { return work.write(); }},
                  {"save", [&] { return work.save(); }},
                  {"write_behind", [&] { return work.write(); }},
                  {"copy", [&] { return work.copy(); }},
                  {"stall", [&] { return work.stall(); }},
                  {"read", [&] { return work.read(); }},
                  {"load", [&] { return work.load(); }},
                  {"read_through", [&] { return work.read_through(); }},
                  {"verify", [&] { return work.verify(); }}},
                 rounds);
  seconds[0].insert(seconds[0].end(), seconds[2].begin(), seconds[2].end());
  const double write = median(seconds[0]);
  const double save = median(seconds[1]);
  const double copy = median(seconds[3]);
  const double stall = median(seconds[4]);
  const double largest_stall = *std::max_element(seconds[4].begin(), seconds[4].end());
  const double read = median(seconds[5]);
  const double load = median(seconds[6]);
  const double read_through = median(seconds[7]);
  const double verify = median(seconds[8]);
  const auto gigabytes = static_cast<double>(work.nbytes()) * 1e-9;
  Report report = new_report("checkpoint");
  report.figures = {
      {"size", gigabytes, "GB"},
      {"write", gigabytes / write, "GB/s"},
      {"save", gigabytes / save, "GB/s"},
      {"save_of_write", write / save, "ratio", kSaveFloor, {}},
      {"memcpy", copy, "s"},
      {"stall", stall, "s"},
      {"stall_over_memcpy", stall / copy, "ratio", {}, kStallCeiling},
      {"largest_stall_over_memcpy", largest_stall / copy, "ratio", {}, kLargestStallCeiling},
      {"read", gigabytes / read, "GB/s"},
      {"load", gigabytes / load, "GB/s"},
      {"load_of_read", read / load, "ratio", kLoadFloor, {}},
      {"read_through", gigabytes / read_through, "GB/s"},
      {"verify", gigabytes / verify, "GB/s"},
      {"verify_of_read_through", read_through / verify, "ratio", kVerifyFloor, {}},
      {"staging", static_cast<double>(work.staging_nbytes()) / kMiB, "MiB"},
      {"memory_of_save",
       grown / kMiB,
       "MiB",
       {},
       (static_cast<double>(work.largest_tensor_nbytes()) + kMemoryBesideStaging) / kMiB},
  };
  return report;
}

Report serve_checkpoints(const Config& config, const std::filesystem::path& folder) {
  CheckpointWork work(config, folder);
  work.save();
  work.stall();
  print_now("ready\n");
  for (std::string line; std::getline(std::cin, line);) {
    const double save = work.save();
    const double copy = work.copy();
    const double stall = work.stall();
    const double load = work.load();
    print_now(fmt::format("{:.6f} {:.6f} {:.6f} {:.6f}\n", save, copy, stall, load));
  }
  Report report = new_report("checkpoint");
  report.figures = {{"size", static_cast<double>(work.nbytes()) * 1e-9, "GB"}};
  return report;
}

}  // namespace fsdptrain::tools
