#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/bench/report.h"
#include "tools/config/config.h"

// The benchmarks, one file each. All run on the rank context that is bound to this thread.
namespace fsdptrain::tools {

// Products of a training step: ours and the library's, against the peak of multiply-and-add.
Report bench_gemm(const Config& config, int rounds);

// Preparation of data against reading the input and writing as many bytes as the output has, in
// files below `folder`, and the loader's part of a training step.
Report bench_data(const std::filesystem::path& folder, std::int64_t megabytes, int rounds);

// What moves memory, in arrays of `numel` floats, against a copy.
Report bench_memory(std::int64_t numel, int rounds);

// Everything but products, each against its roof: operations or bytes.
Report bench_ops(const Config& config, int rounds);

// Collectives of processes on this host, `num_ranks` of them and twice as many on the same
// processors, at shards of these sizes, 2^20 bytes to one, no two equal. Each is beside what no
// collective can save: a copy, or a sum, of the bytes that a rank receives. And beside those of as
// many processes on gloo, which are beside what the library has itself.
Report bench_comm(int num_ranks, const std::vector<std::int64_t>& megabytes, int rounds);

// Saves, loads and verifications of checkpoints of one rank, in files below `folder`, beside what
// they cannot do without.
Report bench_checkpoint(const Config& config, const std::filesystem::path& folder, int rounds);
// A save, a memcpy, a save in the background and a load for each line of standard input; says
// "ready", then their seconds. IoError where standard output does not take them.
Report serve_checkpoints(const Config& config, const std::filesystem::path& folder);

// Start and end of that many ranks that do nothing, by the launcher, beside as many bare processes.
Report bench_launch(int num_ranks, int rounds);

enum class StepComparison : std::uint8_t { None, Dtype, Batch };

// A whole training step against its linears on the library's threads, and where the gap goes.
Report bench_step(const Config& config, int rounds);
// Two kinds of steps in turns: float32 and bfloat16, or 1 sequence and 8.
Report bench_step_comparison(Config config, StepComparison comparison, int rounds);
// One step for each line of standard input; says "ready", then the seconds of each. IoError where
// standard output does not take them.
Report serve_steps(const Config& config);

}  // namespace fsdptrain::tools
