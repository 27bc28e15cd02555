#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/link/frame.h"
#include "comm/tag.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::comm {

// Elements of each rank, in the order of the group.
using Counts = std::vector<std::int64_t>;

// One collective or point-to-point operation as this rank calls it. Ranks, roots and peers are
// those of the group. Tensors are contiguous; they are read and written until the Work is waited
// for. Made by the functions below, issued by ProcessGroup.
struct Operation {
  Op op = Op::Barrier;
  // What this rank gives and gets; undefined where it has no part.
  Tensor input = {};
  Tensor output = {};
  // Elements per rank where they may differ, empty where they are even.
  Counts input_counts = {};
  Counts output_counts = {};
  Reduction reduction = {};
  // The root of a rooted operation, the other rank of a send or a receive, else -1.
  int root = -1;
  Tag tag = {};
};

// output = the inputs of rank 0, of rank 1, ... `input` may be this rank's part of `output`.
Operation all_gather(const Tensor& output, const Tensor& input, const Tag& tag = {});
// The same where rank i gives counts[i] elements.
Operation all_gatherv(const Tensor& output, const Tensor& input, Counts counts,
                      const Tag& tag = {});
// output = part number rank of the combination of all inputs. It may lie at its place in `input`.
Operation reduce_scatter(const Tensor& output, const Tensor& input, const Reduction& reduction = {},
                         const Tag& tag = {});
Operation reduce_scatterv(const Tensor& output, const Tensor& input, Counts counts,
                          const Reduction& reduction = {}, const Tag& tag = {});
// tensor = the combination of all, in place.
Operation all_reduce(const Tensor& tensor, const Reduction& reduction = {}, const Tag& tag = {});
// tensor = that of the root.
Operation broadcast(const Tensor& tensor, int root, const Tag& tag = {});
// On the root, tensor = the combination of all; elsewhere it stays as it is.
Operation reduce(const Tensor& tensor, int root, const Reduction& reduction = {},
                 const Tag& tag = {});
// On the root, output = all inputs; elsewhere `output` is undefined.
Operation gather(const Tensor& output, const Tensor& input, int root, const Tag& tag = {});
// output = part number rank of the root's input; elsewhere `input` is undefined.
Operation scatter(const Tensor& output, const Tensor& input, int root, const Tag& tag = {});
// Part i of input goes to rank i, part i of output comes from rank i. They may not overlap.
Operation all_to_all(const Tensor& output, const Tensor& input, const Tag& tag = {});
Operation all_to_all(const Tensor& output, Counts output_counts, const Tensor& input,
                     Counts input_counts, const Tag& tag = {});
Operation send(const Tensor& tensor, int peer, const Tag& tag = {});
Operation recv(const Tensor& tensor, int peer, const Tag& tag = {});
Operation barrier(const Tag& tag = {});

// A rank of a group, and how many there are.
struct Member {
  int rank = 0;
  int size = 1;
};

// Shapes, dtypes, devices, roots and overlaps, as far as one rank can see them: ShapeError,
// DTypeError, DeviceError, MisuseError naming the operation and the values. `device` is where the
// group moves bytes.
void check_operation(const Operation& operation, const Member& member, Device device);

}  // namespace fsdptrain::comm
