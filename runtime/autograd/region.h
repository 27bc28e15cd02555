#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/autograd/saved_tensor.h"
#include "runtime/base/rank_context.h"

// How recomputed() works: for autograd itself.
namespace fsdptrain::autograd {

class Region;

// The place of one saved tensor of a region: empty, but between a replay and the end of its pass.
// SavedTensors own it, so it goes with the closure that reads it; while there is one, there is
// the region.
class Cell {
 public:
  explicit Cell(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  // Replays the region if the cell is empty.
  const Tensor& read();
  void fill(const Tensor& tensor) { value_ = SavedTensor::holding(tensor); }
  void empty() { value_ = SavedTensor(); }

 private:
  std::shared_ptr<Region> region_;
  SavedTensor value_;
};

// What a region's body runs for.
enum class RegionMode {
  // The forward: every saved tensor becomes a cell.
  Record,
  // A backward needs the cells: the n-th saved tensor fills the n-th cell.
  Replay,
  // An outer region is replayed: saved tensors are of no use.
  Discard,
};

// A body that is running, innermost first.
struct RegionFrame {
  Region& region;
  RegionMode mode;
  RegionFrame* outer;
  // In a replay the producer of every tensor that had one in the forward, so that whatever asks
  // for history sees the same.
  std::shared_ptr<Node> producer;
};

// One run of a recomputed() body: its inputs, what it saved, and how to get that back. Shared by
// the cells of its saved tensors, and so by the closures that read them: it goes with the last of
// these, or with the forward if that saved nothing. It is used on the thread of the rank context
// that ran the forward, like the graph it is part of, and by one run of the body at a time.
class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(const std::vector<Tensor>& inputs, RegionBody body, RecomputeOptions options);

  // The first run of the body.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // Runs the body again and fills all cells that are still there; empties them if that fails.
  void replay();
  // Forgets what a replay brought back; the next read replays again.
  void empty_cells();

  // A saved tensor of the body: the new cell, in the forward.
  std::shared_ptr<Cell> save(RegionMode mode, const Tensor& tensor);
  // `op` made the tensors that were saved since the last call.
  void name_saved(RegionMode mode, std::string_view op);
  // Remembers what an op reads that the region did not make: it must not change before a replay.
  void note_read(const std::vector<Tensor>& inputs);
  void note_owner(const ParameterOwner& owner);

  // An op of the body, also of a region within, asks whether its outputs are kept.
  void note_op(std::string_view op) { std::erase(unseen_, op); }
  bool keeps(std::string_view op) const;
  // `frame` is the region's own, in its forward or a discarded one.
  void keep(const RegionFrame& frame, std::string_view op, const std::vector<Tensor>& outputs);
  std::vector<Tensor> hand_back(std::string_view op);

 private:
  // One tensor that the forward saved.
  struct Saved {
    std::weak_ptr<Cell> cell;
    Shape shape;
    DType dtype;
    std::string_view op;
  };
  struct Kept {
    std::string_view op;
    std::vector<SavedTensor> outputs;
  };
  // What the body reads beside its inputs.
  struct Leaf {
    std::shared_ptr<Meta> meta;
    SavedTensor values;
  };
  // A tensor without history that the body read: made by the body, and gone, or from outside.
  struct Constant {
    std::weak_ptr<Storage> storage;
    Shape shape;
    std::uint64_t version;
  };
  struct OwnerEpoch {
    OwnerRef owner;
    std::uint64_t epoch;
  };
  struct Input {
    SavedTensor values;
    // Its metadata if it is a leaf. That of others would keep the graph above the region alive.
    std::shared_ptr<Meta> leaf;
    bool has_history = false;
  };
  enum class State { Forward, Ready, Replaying };

  void check_unchanged() const;
  std::vector<Tensor> inputs_again(const std::shared_ptr<Node>& producer) const;
  void replay_body(const std::vector<Tensor>& inputs, const std::shared_ptr<Node>& producer);

  RegionBody body_;
  RecomputeOptions options_;
  RandomKeys random_;
  // Where the forward ran, for a watch of the replay (value_watch.h).
  std::string module_;
  State state_ = State::Forward;
  std::vector<Input> inputs_;
  std::vector<Leaf> leaves_;
  std::vector<Constant> constants_;
  std::vector<OwnerEpoch> owners_;
  std::vector<Saved> saved_;
  std::vector<Kept> kept_;
  // Names to keep that no op has passed yet and one must.
  std::vector<std::string_view> unseen_;
  // How far the run under way has come.
  std::size_t num_saved_ = 0;
  std::size_t num_named_ = 0;
  std::size_t num_kept_ = 0;
};

// What a SavedTensor of `tensor` made here holds instead of it; null where it holds the bytes.
std::shared_ptr<Cell> save_in_region(const Tensor& tensor);

// For record(), first thing: an op is about to be recorded.
void note_recorded(std::string_view op, const std::vector<Tensor>& inputs);

// For what reads tensors and records nothing.
void note_read(const std::vector<Tensor>& inputs);

// For owners: a forward of their unit begins.
void note_owner(const ParameterOwner& owner);

// The producer that record() gives its output instead of a node; null where it makes one.
std::shared_ptr<Node> replay_producer();

// For the engine, at the end of a pass, failed or not.
void empty_replayed_regions(AutogradState& state);

}  // namespace fsdptrain::autograd
