#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "runtime/base/shape.h"
#include "runtime/tensor/tensor.h"
#include "shard/layout.h"

// The parameters of a sharded model by name: where this rank has a part of each, and how one
// becomes whole on one rank.
namespace fsdptrain::shard {

class ShardedModel;

// One parameter as this rank has it. Valid while the model is.
struct ParameterPart {
  std::string name;
  Shape shape;
  // Its place among the buffers of all ranks.
  const BufferLayout* layout = nullptr;
  Placement placement;
  // What this rank has of it; ranges are empty where that is nothing.
  LocalRange local;
  // The rank's chunk of the buffer, as it is kept and trained.
  Tensor chunk;
  // Which of ShardedModel::chunks() that is; none for what is not trained.
  std::optional<std::size_t> chunk_number;

  DType dtype() const { return chunk.dtype(); }
  // The rank's elements in its chunk, or in another tensor of the chunk's length, such as a state
  // of the optimizer: one dimension, a window.
  Tensor values() const { return values_in(chunk); }
  Tensor values_in(const Tensor& like_chunk) const;
};

// All parameters of a model whose units are made, in the model's order.
std::vector<ParameterPart> parts_of(const ShardedModel& model);

// The parameter whole, on the rank `root` of the group that it is sharded over; undefined on
// others. `like_chunk` is each rank's chunk, or a tensor that has a value for each element of it. A
// window on it where the root has all, else in `room`: one dimension, as many elements of the
// dtype, on the ranks' device; undefined: memory of its own. Collective over the ranks that have a
// part, and the root.
Tensor gather_to(int root, const ParameterPart& part, const Tensor& like_chunk,
                 comm::ProcessGroup& ranks, const Tensor& room = {});
// The same on all ranks. Collective over all of them.
Tensor gather_to_all(const ParameterPart& part, const Tensor& like_chunk, comm::ProcessGroup& ranks,
                     const Tensor& room = {});

// The other way: each rank's elements of `like_chunk` become those of `whole`, which the root has,
// contiguous and on the ranks' device, and which is undefined on others. Collective over the ranks
// that have a part, and the root. ShapeError or DTypeError, on the root, for one that is another
// parameter's.
void scatter_from(int root, const ParameterPart& part, const Tensor& whole,
                  const Tensor& like_chunk, comm::ProcessGroup& ranks);

}  // namespace fsdptrain::shard
