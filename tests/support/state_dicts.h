#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state/full_state.h"
#include "runtime/tensor/transfer.h"
#include "tests/support/checkpoint_run.h"

// Whole states in the memory of a test.
namespace fsdptrain::testing {

// A whole tensor, of no thread.
struct WholeEntry {
  checkpoint::StateEntry entry;
  std::vector<std::byte> bytes;

  Tensor tensor() const {
    const Tensor values = Tensor::empty(entry.shape, entry.dtype);
    const std::span<std::byte> to = values.mutable_bytes();
    std::copy(bytes.begin(), bytes.end(), to.begin());
    return values;
  }
};
using WholeState = std::vector<WholeEntry>;

// Collective; empty on ranks that get nothing.
inline WholeState whole_state_of(comm::World& world, const checkpoint::TrainingState& state,
                                 const checkpoint::FullStateOptions& options = {}) {
  WholeState whole;
  checkpoint::stream_full_state(
      world, state,
      [&](const checkpoint::StateEntry& entry, const Tensor& values) {
        const Tensor on_host = to_device(values, Device::cpu());
        const auto bytes = on_host.bytes();
        whole.push_back({.entry = entry, .bytes = {bytes.begin(), bytes.end()}});
      },
      options);
  return whole;
}

// Outlived by what it reads from.
inline checkpoint::FullStateSource source_of(const WholeState& whole) {
  checkpoint::FullStateSource source;
  for (const WholeEntry& one : whole) {
    source.entries.push_back(one.entry);
  }
  source.values = [&whole](const checkpoint::StateEntry& entry) {
    const auto found = std::ranges::find_if(whole, [&](const WholeEntry& one) {
      return one.entry.plane == entry.plane && one.entry.name == entry.name;
    });
    return found->tensor();
  };
  return source;
}

// Collective: rank 0 has the source.
inline void load_whole_state(comm::World& world, const checkpoint::TrainingState& state,
                             const WholeState& whole,
                             const checkpoint::LoadFullOptions& options = {}) {
  const checkpoint::FullStateSource source = source_of(whole);
  checkpoint::load_full_state(world, state, world.rank() == 0 ? &source : nullptr, options);
}

// As all_state_of() has them, but for what is no tensor.
inline Values values_of(const WholeState& whole) {
  Values values;
  for (const WholeEntry& one : whole) {
    if (one.entry.shape.numel() > 0) {
      values[one.entry.plane + " " + one.entry.name] = one.tensor().to_vector();
    }
  }
  return values;
}
inline Values tensors_only(Values values) {
  std::erase_if(values, [](const auto& entry) {
    return entry.first.starts_with("step ") || entry.first == "progress";
  });
  return values;
}

}  // namespace fsdptrain::testing
