#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include <doctest/doctest.h>

#include "comm/process_group.h"
#include "comm/world.h"
#include "runtime/base/half.h"
#include "tests/support/rank_backends.h"

// Every operation against what it is defined to be, computed by one thread from the inputs of all
// ranks, bit for bit.
namespace fsdptrain::comm {
namespace {

using testing::Backend;

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                             DType::Int64,   DType::Int32,   DType::UInt16,   DType::UInt8};
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 7, 31, 127, 1021, 4093};

// What rank `rank` gives at place i: known to all, different everywhere, exact in no 16-bit type.
double value_at(int rank, std::int64_t i, DType dtype) {
  const std::int64_t mixed = ((i + 7) * 2654435761 + rank * 40503) % 1009;
  return is_floating(dtype) ? (static_cast<double>(mixed) - 500) / 7.0
                            : static_cast<double>(mixed % 251);
}

Tensor given_by(int rank, std::int64_t numel, DType dtype) {
  const Tensor tensor = Tensor::empty({numel}, dtype);
  for (std::int64_t i = 0; i < numel; ++i) {
    tensor.detach().set_item(i, value_at(rank, i, dtype));
  }
  return tensor;
}

// In the accumulator, by the definition: split at the largest power of two below the number.
template <class V>
V tree_sum(const std::vector<V>& values, std::size_t begin, std::size_t end) {
  if (end - begin == 1) {
    return values[begin];
  }
  std::size_t half = 1;
  while (half * 2 < end - begin) {
    half *= 2;
  }
  return static_cast<V>(tree_sum(values, begin, begin + half) +
                        tree_sum(values, begin + half, end));
}

template <class V>
V combine_in(const Reduction& reduction, std::vector<V> values) {
  switch (reduction.op) {
    case ReduceOp::Sum:
      return tree_sum(values, 0, values.size());
    case ReduceOp::Avg:
      return static_cast<V>(tree_sum(values, 0, values.size()) *
                            static_cast<V>(1.0 / static_cast<double>(values.size())));
    case ReduceOp::PremulSum:
      for (V& value : values) {
        value = static_cast<V>(value * static_cast<V>(reduction.factor));
      }
      return tree_sum(values, 0, values.size());
    case ReduceOp::Min:
      return *std::ranges::min_element(values);
    case ReduceOp::Max:
      return *std::ranges::max_element(values);
  }
  return V{};
}

// The combination of what all ranks give, at every place.
Tensor combined(int num_ranks, std::int64_t numel, DType dtype, const Reduction& reduction) {
  std::vector<Tensor> given;
  for (int rank = 0; rank < num_ranks; ++rank) {
    given.push_back(given_by(rank, numel, dtype));
  }
  Tensor result = Tensor::empty({numel}, dtype);
  for (std::int64_t i = 0; i < numel; ++i) {
    std::vector<double> values;
    for (const Tensor& tensor : given) {
      values.push_back(tensor.item(i));
    }
    if (dtype == DType::Float64) {
      result.set_item(i, combine_in(reduction, values));
    } else if (is_floating(dtype)) {
      result.set_item(i, combine_in(reduction, std::vector<float>(values.begin(), values.end())));
    } else {
      const auto sum =
          combine_in(reduction, std::vector<std::int64_t>(values.begin(), values.end()));
      const std::int64_t wrapped = dtype == DType::UInt8 ? sum % 256 : sum;
      result.set_item(i, static_cast<double>(wrapped));
    }
  }
  return result;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.numel() == b.numel() && a.dtype() == b.dtype() &&
         std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

Tensor slice(const Tensor& tensor, std::int64_t begin, std::int64_t numel) {
  return tensor.alias({numel}, {1}, begin);
}

std::vector<Reduction> reductions(DType dtype) {
  std::vector<Reduction> all{{ReduceOp::Sum}, {ReduceOp::Min}, {ReduceOp::Max}};
  if (is_floating(dtype)) {
    all.push_back({ReduceOp::Avg});
    all.push_back({ReduceOp::PremulSum, 0.3});
  }
  return all;
}

// A tensor whose bytes peers read in place, or one that goes through staging.
Tensor make(ProcessGroup& group, std::int64_t numel, DType dtype, bool allocated) {
  return allocated ? group.allocate({numel}, dtype) : Tensor::empty({numel}, dtype);
}

void fill(Tensor& tensor, const Tensor& from) {
  std::memcpy(tensor.mutable_bytes().data(), from.bytes().data(), from.bytes().size());
}

void check_reductions(ProcessGroup& group, std::int64_t numel, DType dtype, bool allocated) {
  const int size = group.size();
  for (const Reduction& reduction : reductions(dtype)) {
    CAPTURE(name_of(reduction.op));
    const Tensor mine = given_by(group.rank(), numel * size, dtype);
    const Tensor expected = combined(size, numel * size, dtype, reduction);
    Tensor input = make(group, numel * size, dtype, allocated);
    fill(input, mine);
    Tensor output = make(group, numel, dtype, allocated);
    group.issue(reduce_scatter(output, input, reduction)).wait();
    CHECK(same_bits(output, slice(expected, numel * group.rank(), numel)));
    CHECK(same_bits(input, mine));
    // In place of this rank's part.
    const Tensor part = slice(input, numel * group.rank(), numel);
    group.issue(reduce_scatter(part, input, reduction)).wait();
    CHECK(same_bits(part, output));

    fill(input, mine);
    group.issue(all_reduce(input, reduction)).wait();
    CHECK(same_bits(input, expected));

    fill(input, mine);
    const int root = size - 1;
    group.issue(reduce(input, root, reduction)).wait();
    CHECK(same_bits(input, group.rank() == root ? expected : mine));
  }
}

void check_moves(ProcessGroup& group, std::int64_t numel, DType dtype, bool allocated) {
  const int size = group.size();
  const int rank = group.rank();
  Tensor input = make(group, numel, dtype, allocated);
  fill(input, given_by(rank, numel, dtype));
  Tensor output = make(group, numel * size, dtype, allocated);
  group.issue(all_gather(output, input)).wait();
  for (int i = 0; i < size; ++i) {
    CHECK(same_bits(slice(output, numel * i, numel), given_by(i, numel, dtype)));
  }
  // In place of this rank's part.
  Tensor whole = make(group, numel * size, dtype, allocated);
  Tensor place = slice(whole, numel * rank, numel);
  fill(place, input);
  group.issue(all_gather(whole, place)).wait();
  CHECK(same_bits(whole, output));

  const int root = size / 2;
  Tensor sent = make(group, numel, dtype, allocated);
  fill(sent, given_by(rank, numel, dtype));
  group.issue(broadcast(sent, root)).wait();
  CHECK(same_bits(sent, given_by(root, numel, dtype)));

  Tensor gathered = make(group, numel * size, dtype, allocated);
  group.issue(gather(rank == root ? gathered : Tensor(), input, root)).wait();
  CHECK((rank != root || same_bits(gathered, output)));

  Tensor scattered = make(group, numel, dtype, allocated);
  group.issue(scatter(scattered, rank == root ? gathered : Tensor(), root)).wait();
  CHECK(same_bits(scattered, input));

  // Part j of rank i is what rank i gives, shifted by j.
  Tensor parts = make(group, numel * size, dtype, allocated);
  for (int j = 0; j < size; ++j) {
    Tensor part = slice(parts, numel * j, numel);
    fill(part, given_by(rank * 31 + j, numel, dtype));
  }
  Tensor received = make(group, numel * size, dtype, allocated);
  group.issue(all_to_all(received, parts)).wait();
  for (int i = 0; i < size; ++i) {
    CHECK(same_bits(slice(received, numel * i, numel), given_by(i * 31 + rank, numel, dtype)));
  }
}

// Rank i has i + 1, or none if it is odd.
Counts uneven_counts(int size, std::int64_t numel) {
  Counts counts;
  for (int i = 0; i < size; ++i) {
    counts.push_back(i % 2 == 1 ? 0 : numel + i);
  }
  return counts;
}

void check_uneven(ProcessGroup& group, std::int64_t numel, DType dtype) {
  const int size = group.size();
  const int rank = group.rank();
  const Counts counts = uneven_counts(size, numel);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
  const Tensor output = Tensor::empty({total}, dtype);
  group.issue(all_gather(output, given_by(rank, mine, dtype), counts)).wait();
  std::int64_t begin = 0;
  for (int i = 0; i < size; ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    CHECK(same_bits(slice(output, begin, count), given_by(i, count, dtype)));
    if (i == rank) {
      const Tensor part = Tensor::empty({count}, dtype);
      group.issue(reduce_scatter(part, given_by(rank, total, dtype), counts)).wait();
      CHECK(same_bits(part, slice(combined(size, total, dtype, {}), begin, count)));
    }
    begin += count;
  }
  // Rank i sends (i + j) % 3 elements to rank j.
  Counts to(static_cast<std::size_t>(size));
  for (int j = 0; j < size; ++j) {
    to[static_cast<std::size_t>(j)] = (rank + j) % 3 * numel;
  }
  const std::int64_t num_sent = std::accumulate(to.begin(), to.end(), std::int64_t{0});
  const Tensor received = Tensor::empty({num_sent}, dtype);
  group.issue(all_to_all(received, to, given_by(rank, num_sent, dtype), to)).wait();
  begin = 0;
  for (int i = 0; i < size; ++i) {
    const std::int64_t count = (rank + i) % 3 * numel;
    std::int64_t before = 0;
    for (int j = 0; j < rank; ++j) {
      before += (i + j) % 3 * numel;
    }
    CHECK(same_bits(slice(received, begin, count),
                    slice(given_by(i, before + count, dtype), before, count)));
    begin += count;
  }
}

void check_ring(ProcessGroup& group, std::int64_t numel, DType dtype) {
  const int size = group.size();
  if (size == 1) {
    return;
  }
  const int next = (group.rank() + 1) % size;
  const int previous = (group.rank() + size - 1) % size;
  const Tensor received = Tensor::empty({numel}, dtype);
  group.batch({send(given_by(group.rank(), numel, dtype), next), recv(received, previous)}).wait();
  CHECK(same_bits(received, given_by(previous, numel, dtype)));
}

void check_all(ProcessGroup& group, bool allocated) {
  for (const DType dtype : kDTypes) {
    CAPTURE(fsdptrain::name_of(dtype));
    for (const std::int64_t numel : kSizes) {
      CAPTURE(numel);
      check_moves(group, numel, dtype, allocated);
      check_reductions(group, numel, dtype, allocated);
      check_uneven(group, numel, dtype);
      check_ring(group, numel, dtype);
    }
  }
}

}  // namespace

TEST_SUITE("comm/collectives") {
  TEST_CASE("every operation is what it is defined to be, bit for bit") {
    for (const Backend backend : testing::all_backends()) {
      CAPTURE(testing::name_of(backend));
      for (const int num_ranks : {1, 2, 3, 4, 5, 7}) {
        CAPTURE(num_ranks);
        for (const bool allocated : {false, true}) {
          CAPTURE(allocated);
          run_ranks(testing::thread_ranks(backend, num_ranks),
                    [&](World& world) { check_all(world.group(), allocated); });
        }
      }
    }
  }
}

}  // namespace fsdptrain::comm
