#pragma once

#include <string>
#include <string_view>

namespace fsdptrain::comm {

// What our own launcher tells a rank, beside torchrun's variables.
struct WorkerSpec {
  // Numbers of descriptors that the rank inherits. comm::Segment::create()'s, of all ranks of the
  // host.
  int segment = -1;
  // This rank's FlightMemory.
  int flight = -1;
  // store::inherit_connection()'s.
  int store = -1;
  // Whether this rank runs on processors that no other rank of the host may use.
  bool is_bound = false;
  // On which the ranks of the host run, all together.
  int num_processors = 1;

  friend bool operator==(const WorkerSpec&, const WorkerSpec&) = default;
};

// The variable that has it.
inline constexpr const char* kWorkerVariable = "FSDPTRAIN_WORKER";

// Its value: "1 segment=5 flight=6 store=7 bound=1 processors=8".
std::string to_text(const WorkerSpec& spec);
// Reads that; ConfigError for anything else.
WorkerSpec parse_worker_spec(std::string_view text);

}  // namespace fsdptrain::comm
