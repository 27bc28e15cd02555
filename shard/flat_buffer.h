#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/autograd/gradient_slot.h"
#include "runtime/nn/flat_chunk.h"
#include "runtime/nn/parameter.h"
#include "shard/chunk_gradients.h"
#include "shard/layout.h"

namespace fsdptrain::shard {

// One buffer of a group as one rank has it: the chunk that it owns, the chunk's gradients, and
// windows on the whole buffer, through which the module sees parameters and autograd writes
// gradients. Windows have bytes only while somebody else's memory is placed under them.
class FlatBuffer {
 public:
  struct Options {
    int rank = 0;
    Device device = Device::cpu();
    std::uint64_t seed = 0;
    Accumulation accumulation = Accumulation::Sharded;
    // Who brings the windows' bytes back.
    autograd::OwnerRef owner;
  };

  // Of all parameters of the group, those of this buffer; `adjacent` are sets of names that share a
  // window. Initialises the chunk.
  FlatBuffer(BufferLayout layout, std::span<const nn::Parameter> parameters,
             std::span<const std::vector<std::string>> adjacent, const Options& options);

  const BufferLayout& layout() const { return layout_; }
  bool trainable() const { return layout_.key().trainable(); }
  // Whose chunk it is.
  int rank() const { return rank_; }

  // What this rank owns, and the gradients of it (undefined where nothing is trained): one
  // dimension, the original dtype.
  const Tensor& chunk() const { return chunk_; }
  const Tensor& gradients() const { return gradients_.values(); }
  // The chunk's part of a whole buffer.
  Tensor own_part(const Tensor& whole) const;
  // For an optimizer: of the parameters that this rank has elements of.
  const std::vector<nn::Segment>& segments() const { return segments_; }
  // Says which of them, in the same order, have a gradient.
  void mark_active(std::span<nn::Segment> segments) const;
  // What of gradients() a norm is over: the rest is zero or of an earlier step.
  std::vector<Range> ranges_of_gradients() const;

  // One parameter as the module sees it.
  struct Member {
    // In the list of the group.
    std::size_t parameter = 0;
    Tensor values;
    // Null if it is not trained.
    std::shared_ptr<autograd::GradientSlot> slot;
    // A gradient has been written since forget_gradients(), on this rank or, once that was noted,
    // on another.
    bool has_gradient = false;
  };
  const std::vector<Member>& members() const { return members_; }

  // The windows see `whole`, which has the gathered dtype and outlives release_parameters().
  void place_parameters(const Tensor& whole);
  void release_parameters();
  // The same for gradients, in the reduce dtype; nothing to release where there are none.
  void place_gradients(const Tensor& whole);
  void release_gradients();
  bool gradients_placed() const { return gradients_placed_; }

  // What of `whole` no gradient was written to becomes zero; members note theirs, and the next
  // write replaces.
  void complete_gradients(const Tensor& whole);
  // Notes which members have a gradient by now, or that one has on another rank.
  void note_gradients();
  void note_gradient_elsewhere(std::size_t member) { members_[member].has_gradient = true; }
  // Adds the chunk's part of what reduction number `number` of a backward has brought.
  void accumulate(const Tensor& whole, std::size_t number);
  // All has been added: gradients() are final.
  void finish_gradients() { gradients_.finish(); }
  bool gradients_are_final() const { return gradients_.is_final(); }
  // One rank, whose windows may be on the chunk's gradients: where they are placed, and that what
  // is there was reduced over replicas.
  const Tensor& open_gradients() { return gradients_.open(); }
  void close_gradients() { gradients_.close(); }
  // No member has a gradient, and the next write replaces.
  void forget_gradients();

 private:
  // Parameters that lie without gaps and may be seen as one.
  struct Window {
    Range in_buffer;
    std::shared_ptr<Storage> parameters;
    std::shared_ptr<Storage> gradients;
  };

  void add_windows(std::span<const nn::Parameter> parameters,
                   std::span<const std::vector<std::string>> adjacent, Device device);
  // Of the placement of this number.
  void add_member(std::size_t index, const nn::Parameter& parameter,
                  const autograd::OwnerRef& owner);
  void initialize_part(std::size_t index, const nn::Parameter& parameter, std::uint64_t seed);

  BufferLayout layout_;
  int rank_;
  Tensor chunk_;
  ChunkGradients gradients_;
  bool gradients_placed_ = false;
  std::vector<Window> windows_;
  // In the order of the placements; and which window shows each.
  std::vector<Member> members_;
  std::vector<std::size_t> window_of_;
  // Of the members that this rank has elements of; and which each is.
  std::vector<nn::Segment> segments_;
  std::vector<std::size_t> member_of_;
};

}  // namespace fsdptrain::shard
