#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/stopwatch.h"

// Times of things that are compared, taken in turns: a machine that changes its speed meanwhile
// changes it for all of them.
namespace fsdptrain::tools {

// Error for no samples.
double median(std::vector<double> samples);
// (largest - smallest) / median
double spread(const std::vector<double>& samples);

struct Contestant {
  std::string name;
  // Runs once and returns the seconds it took.
  std::function<double()> run;
};

// The times of each contestant, in their order: `rounds` rounds in which each runs once, after
// one that does not count. Threads that spin a little behind their work rest before the next
// one's turn. `what` names the progress on standard error; empty: there is none.
std::vector<std::vector<double>> interleave(const std::string& what,
                                            const std::vector<Contestant>& contestants, int rounds);

// Waits until threads that spin have gone to sleep.
void settle();

// The seconds of one call: as many calls as take `least_seconds`, together.
double time_calls(const std::function<void()>& call, double least_seconds);

}  // namespace fsdptrain::tools
