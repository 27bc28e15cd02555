#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

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

// What sums of T are computed in.
template <class T>
using Accumulator =
    std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, T, float>;

template <class T>
Accumulator<T> widen(T x) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return to_float(x);
  } else {
    return x;
  }
}

template <class T>
T rounded(Accumulator<T> x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(x);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(x);
  } else {
    return x;
  }
}

// What rank `rank` gives at place i: known to all, different everywhere, exact in no 16-bit type.
double value_at(int rank, std::int64_t i, DType dtype) {
  const std::int64_t mixed = ((i + 7) * 2654435761 + rank * 40503) % 1009;
  return is_floating(dtype) ? (static_cast<double>(mixed) - 500) / 7.0
                            : static_cast<double>(mixed % 251);
}

Tensor made_by(int rank, std::int64_t numel, DType dtype) {
  const Tensor tensor = Tensor::empty({numel}, dtype);
  dispatch_any(dtype, [&]<class T>() {
    std::int64_t i = 0;
    for (T& value : tensor.mutable_values<T>()) {
      value = rounded<T>(static_cast<Accumulator<T>>(value_at(rank, i++, dtype)));
    }
  });
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
V combine_in(const Reduction& reduction, std::vector<V>& values) {
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
Tensor combined(const std::vector<Tensor>& given, const Reduction& reduction) {
  const DType dtype = given.front().dtype();
  const Tensor result = Tensor::empty(given.front().shape(), dtype);
  dispatch_any(dtype, [&]<class T>() {
    using V = Accumulator<T>;
    std::vector<std::span<const T>> parts;
    for (const Tensor& tensor : given) {
      parts.push_back(tensor.values<T>());
    }
    std::vector<V> values(parts.size());
    const std::span<T> out = result.mutable_values<T>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::ranges::transform(parts, values.begin(),
                             [i](std::span<const T> part) { return widen(part[i]); });
      out[i] = rounded<T>(combine_in(reduction, values));
    }
  });
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

// What the ranks of a group give in one dtype, and its combinations, made once and by one thread.
class Oracle {
 public:
  // Of `numel` elements; those of fewer are their begin.
  Oracle(int num_ranks, std::int64_t numel, DType dtype, const std::vector<Reduction>& reductions)
      : dtype_(dtype), reductions_(reductions) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      given_.push_back(made_by(rank, numel, dtype));
    }
    for (const Reduction& reduction : reductions) {
      combined_.push_back(combined(given_, reduction));
    }
  }

  DType dtype() const { return dtype_; }
  const std::vector<Reduction>& reductions() const { return reductions_; }
  Tensor given(int rank, std::int64_t begin, std::int64_t numel) const {
    return slice(given_[static_cast<std::size_t>(rank)], begin, numel);
  }
  // By reduction `index`.
  Tensor combination(std::size_t index, std::int64_t begin, std::int64_t numel) const {
    return slice(combined_[index], begin, numel);
  }

 private:
  DType dtype_;
  std::vector<Reduction> reductions_;
  std::vector<Tensor> given_;
  std::vector<Tensor> combined_;
};

// Whether tensors are allocated by the group: over the network that makes no difference.
std::vector<bool> memories(Backend backend) {
  return backend == Backend::Gloo ? std::vector<bool>{false} : std::vector<bool>{false, true};
}

// A tensor whose bytes peers read in place, or one that goes through staging.
Tensor make(ProcessGroup& group, std::int64_t numel, DType dtype, bool allocated) {
  return allocated ? group.allocate({numel}, dtype) : Tensor::empty({numel}, dtype);
}

Tensor copy_of(ProcessGroup& group, const Tensor& from, bool allocated) {
  Tensor copy = make(group, from.numel(), from.dtype(), allocated);
  std::ranges::copy(from.bytes(), copy.mutable_bytes().begin());
  return copy;
}

void check_reductions(ProcessGroup& group, const Oracle& oracle, std::int64_t numel,
                      bool allocated) {
  const int size = group.size();
  const int rank = group.rank();
  const Tensor mine = oracle.given(rank, 0, numel * size);
  for (std::size_t i = 0; i < oracle.reductions().size(); ++i) {
    const Reduction& reduction = oracle.reductions()[i];
    CAPTURE(name_of(reduction.op));
    const Tensor input = copy_of(group, mine, allocated);
    const Tensor output = make(group, numel, oracle.dtype(), allocated);
    group.issue(reduce_scatter(output, input, reduction)).wait();
    CHECK(same_bits(output, oracle.combination(i, numel * rank, numel)));
    CHECK(same_bits(input, mine));
    // In place of this rank's part.
    const Tensor part = slice(input, numel * rank, numel);
    group.issue(reduce_scatter(part, input, reduction)).wait();
    CHECK(same_bits(part, output));

    const Tensor all = copy_of(group, mine, allocated);
    group.issue(all_reduce(all, reduction)).wait();
    CHECK(same_bits(all, oracle.combination(i, 0, numel * size)));

    const Tensor rooted = copy_of(group, mine, allocated);
    group.issue(reduce(rooted, size - 1, reduction)).wait();
    CHECK(same_bits(rooted, rank == size - 1 ? oracle.combination(i, 0, numel * size) : mine));
  }
}

void check_moves(ProcessGroup& group, const Oracle& oracle, std::int64_t numel, bool allocated) {
  const int size = group.size();
  const int rank = group.rank();
  const DType dtype = oracle.dtype();
  const Tensor input = copy_of(group, oracle.given(rank, 0, numel), allocated);
  const Tensor output = make(group, numel * size, dtype, allocated);
  group.issue(all_gather(output, input)).wait();
  for (int i = 0; i < size; ++i) {
    CHECK(same_bits(slice(output, numel * i, numel), oracle.given(i, 0, numel)));
  }
  // In place of this rank's part.
  const Tensor whole = make(group, numel * size, dtype, allocated);
  const Tensor place = slice(whole, numel * rank, numel);
  std::ranges::copy(input.bytes(), place.mutable_bytes().begin());
  group.issue(all_gather(whole, place)).wait();
  CHECK(same_bits(whole, output));

  const int root = size / 2;
  const Tensor sent = copy_of(group, input, allocated);
  group.issue(broadcast(sent, root)).wait();
  CHECK(same_bits(sent, oracle.given(root, 0, numel)));

  const Tensor gathered = make(group, numel * size, dtype, allocated);
  group.issue(gather(rank == root ? gathered : Tensor(), input, root)).wait();
  CHECK((rank != root || same_bits(gathered, output)));

  const Tensor scattered = make(group, numel, dtype, allocated);
  group.issue(scatter(scattered, rank == root ? gathered : Tensor(), root)).wait();
  CHECK(same_bits(scattered, input));

  const Tensor parts = copy_of(group, oracle.given(rank, 0, numel * size), allocated);
  const Tensor received = make(group, numel * size, dtype, allocated);
  group.issue(all_to_all(received, parts)).wait();
  for (int i = 0; i < size; ++i) {
    CHECK(same_bits(slice(received, numel * i, numel), oracle.given(i, numel * rank, numel)));
  }
}

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Rank i gives numel - i, or none if it is odd.
void check_uneven_parts(ProcessGroup& group, const Oracle& oracle, std::int64_t numel) {
  Counts counts;
  for (int i = 0; i < group.size(); ++i) {
    counts.push_back(i % 2 == 1 ? 0 : std::max<std::int64_t>(numel - i, 0));
  }
  const int rank = group.rank();
  const std::int64_t total = sum_of(counts);
  const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
  const Tensor output = Tensor::empty({total}, oracle.dtype());
  group.issue(all_gatherv(output, oracle.given(rank, 0, mine), counts)).wait();
  const Tensor part = Tensor::empty({mine}, oracle.dtype());
  group.issue(reduce_scatterv(part, oracle.given(rank, 0, total), counts)).wait();
  std::int64_t begin = 0;
  for (int i = 0; i < group.size(); ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    CHECK(same_bits(slice(output, begin, count), oracle.given(i, 0, count)));
    CHECK((i != rank || same_bits(part, oracle.combination(0, begin, count))));
    begin += count;
  }
}

// Rank i sends (i + j) % 3 * (numel / 2) elements to rank j.
void check_uneven_all_to_all(ProcessGroup& group, const Oracle& oracle, std::int64_t numel) {
  const auto counts_of = [&](int from) {
    Counts counts;
    for (int to = 0; to < group.size(); ++to) {
      counts.push_back((from + to) % 3 * (numel / 2));
    }
    return counts;
  };
  // As many from each as to each.
  const Counts mine = counts_of(group.rank());
  const Tensor received = Tensor::empty({sum_of(mine)}, oracle.dtype());
  group.issue(all_to_all(received, mine, oracle.given(group.rank(), 0, sum_of(mine)), mine)).wait();
  std::int64_t begin = 0;
  for (int i = 0; i < group.size(); ++i) {
    const Counts theirs = counts_of(i);
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::int64_t before = sum_of(std::span(theirs).first(rank));
    CHECK(same_bits(slice(received, begin, theirs[rank]), oracle.given(i, before, theirs[rank])));
    begin += theirs[rank];
  }
}

void check_ring(ProcessGroup& group, const Oracle& oracle, std::int64_t numel) {
  const int size = group.size();
  if (size == 1) {
    return;
  }
  const int next = (group.rank() + 1) % size;
  const int previous = (group.rank() + size - 1) % size;
  const Tensor received = Tensor::empty({numel}, oracle.dtype());
  group.batch({send(oracle.given(group.rank(), 0, numel), next), recv(received, previous)}).wait();
  CHECK(same_bits(received, oracle.given(previous, 0, numel)));
}

void check_all(ProcessGroup& group, const Oracle& oracle, std::span<const std::int64_t> sizes,
               bool allocated) {
  for (const std::int64_t numel : sizes) {
    CAPTURE(numel);
    check_moves(group, oracle, numel, allocated);
    check_reductions(group, oracle, numel, allocated);
    check_uneven_parts(group, oracle, numel);
    check_uneven_all_to_all(group, oracle, numel);
    check_ring(group, oracle, numel);
  }
}

void check_all(Backend backend, int num_ranks, std::span<const std::int64_t> sizes,
               std::optional<std::uint64_t> delay_seed = {}) {
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<Oracle> oracles;
  for (const DType dtype : kDTypes) {
    oracles.emplace_back(num_ranks, largest * num_ranks, dtype, reductions(dtype));
  }
  for (const bool allocated : memories(backend)) {
    ThreadRanks ranks = testing::thread_ranks(backend, num_ranks);
    ranks.delay_seed = delay_seed;
    run_ranks(ranks, [&](World& world) {
      CAPTURE(allocated);
      for (const Oracle& oracle : oracles) {
        CAPTURE(fsdptrain::name_of(oracle.dtype()));
        check_all(world.group(), oracle, sizes, allocated);
      }
    });
  }
}

// All dtypes and sizes.
void check_every_operation(Backend backend, std::initializer_list<int> worlds) {
  for (const int num_ranks : worlds) {
    CAPTURE(num_ranks);
    check_all(backend, num_ranks, kSizes);
  }
}

void check_large_sums(DType dtype, std::int64_t nbytes) {
  for (const int num_ranks : {2, 4}) {
    CAPTURE(num_ranks);
    const std::int64_t numel = nbytes / static_cast<std::int64_t>(size_of(dtype)) / num_ranks;
    const Oracle oracle(num_ranks, numel * num_ranks, dtype, {{ReduceOp::Sum}});
    for (const Backend backend : testing::all_backends()) {
      CAPTURE(testing::name_of(backend));
      for (const bool allocated : memories(backend)) {
        run_ranks(testing::thread_ranks(backend, num_ranks, std::uint64_t{256} << 20),
                  [&](World& world) { check_reductions(world.group(), oracle, numel, allocated); });
      }
    }
  }
}

}  // namespace

TEST_SUITE("comm/collectives") {
  TEST_CASE("every operation is what it is defined to be, bit for bit, on threads") {
    check_every_operation(Backend::Threads, {1, 2, 3, 4, 5, 7});
  }

  TEST_CASE("every operation is what it is defined to be, bit for bit, in shared memory") {
    check_every_operation(Backend::Shm, {1, 2, 3, 4, 5, 7});
  }

  // Every message of gloo takes several threads.
  TEST_CASE("every operation is what it is defined to be, bit for bit, over gloo") {
    check_every_operation(Backend::Gloo, {1, 2, 3, 4});
  }

  TEST_CASE("every operation is what it is defined to be, bit for bit, over gloo, on 5 ranks") {
    check_every_operation(Backend::Gloo, {5});
  }

  TEST_CASE("every operation is what it is defined to be, bit for bit, over gloo, on 7 ranks") {
    check_every_operation(Backend::Gloo, {7});
  }

  TEST_CASE("random delays in every step change no bit") {
    for (const Backend backend : testing::all_backends()) {
      CAPTURE(testing::name_of(backend));
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        CAPTURE(seed);
        check_all(backend, 3, std::array<std::int64_t, 2>{3, 127}, seed);
      }
    }
  }

  TEST_CASE("sums of 1 MiB are the same bits") {
    check_large_sums(DType::Float32, 1 << 20);
    check_large_sums(DType::BFloat16, 1 << 20);
  }

  TEST_CASE("sums of 16 MiB are the same bits, of float32") {
    check_large_sums(DType::Float32, 16 << 20);
  }

  TEST_CASE("sums of 16 MiB are the same bits, of bfloat16") {
    check_large_sums(DType::BFloat16, 16 << 20);
  }
}

}  // namespace fsdptrain::comm
