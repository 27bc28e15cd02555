#pragma once

#include "comm/init/init.h"
#include "tools/bench/report.h"
#include "tools/config/config.h"

// Steps of several ranks of this host, of which this process is one. All of them call the same, and
// the report of rank 0 counts.
namespace fsdptrain::tools {

struct StepRanksOptions {
  int rounds = 21;
  // Only the step without communication.
  bool no_comm = false;
};

// The sharded step, in turns with the same step whose operations between ranks do nothing, and with
// one process that has the threads and computes the tokens of all. train.micro_batch is that of
// one rank. Error where the losses of both differ.
Report bench_step_ranks(const Config& config, const StepRanksOptions& options, comm::Job& job);

// The sharded step, as serve_steps() does it: rank 0 reads and prints, each time is that of the
// slowest rank.
Report serve_rank_steps(const Config& config, comm::Job& job);

}  // namespace fsdptrain::tools
