#include "kernels/cpu/attention.h"

#include "kernels/cpu/tile_product.h"
#include "kernels/functors/element.h"
#include "kernels/functors/online_softmax.h"

// Tiles of 64 queries and up to 64 keys. Scores are held with keys as rows and queries as columns
// (scores_KQ), so that maxima and sums over keys run down the lanes and no key is ever transposed.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

constexpr std::int64_t kBlock = kAttentionBlock;
static_assert(kBlock % kTileRows == 0 && kBlock % kTileColumns<float> == 0 &&
                  attention_pad(kIsa) % kTileColumns<float> == 0,
              "blocks and padded heads hold whole register tiles");

template <class T>
constexpr T kInfinityOf = static_cast<T>(__builtin_inf());

FSDPTRAIN_HOST_DEVICE std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

// One head of one sample of a view [B, T, H, D]: rows of D elements.
template <class E>
struct Rows {
  E* data;
  std::int64_t row_stride;
  std::int64_t stride;

  FSDPTRAIN_HOST_DEVICE E* row(std::int64_t index) const { return data + index * row_stride; }
};

template <class E>
FSDPTRAIN_HOST_DEVICE Rows<E> head_of(const View& view, std::int64_t batch, std::int64_t head) {
  return {static_cast<E*>(view.data) + batch * view.strides[0] + head * view.strides[2],
          view.strides[1], view.strides[3]};
}

// to[0, rows) = factor * from[begin, ...), zero beyond `valid` rows and `size` columns.
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void pack_rows(T* to, std::int64_t padded_size, std::int64_t rows,
                                     const Rows<E>& from, std::int64_t begin, std::int64_t valid,
                                     std::int64_t size, T factor) {
  for (std::int64_t row = 0; row < valid; ++row) {
    const E* const source = from.row(begin + row);
    T* const target = to + row * padded_size;
    if (from.stride == 1) {
#pragma GCC ivdep
      for (std::int64_t d = 0; d < size; ++d) {
        target[d] = factor * load(source[d]);
      }
    } else {
      for (std::int64_t d = 0; d < size; ++d) {
        target[d] = factor * load(source[d * from.stride]);
      }
    }
    for (std::int64_t d = size; d < padded_size; ++d) {
      target[d] = T(0);
    }
  }
  for (std::int64_t index = valid * padded_size; index < rows * padded_size; ++index) {
    to[index] = T(0);
  }
}

// to.row(row) = factor * from
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void store_row(const Rows<E>& to, std::int64_t row, const T* from,
                                     std::int64_t size, T factor) {
  E* const target = to.row(row);
  if (to.stride == 1) {
#pragma GCC ivdep
    for (std::int64_t d = 0; d < size; ++d) {
      target[d] = Store<E>::to(factor * from[d]);
    }
  } else {
    for (std::int64_t d = 0; d < size; ++d) {
      target[d * to.stride] = Store<E>::to(factor * from[d]);
    }
  }
}

// The rows of a packed block as columns: to[d][0, kBlock).
template <class T>
FSDPTRAIN_HOST_DEVICE void transpose_block(T* to, const T* from, std::int64_t padded_size) {
  for (std::int64_t d = 0; d < padded_size; ++d) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      to[d * kBlock + i] = from[i * padded_size + d];
    }
  }
}

// A block of queries against a block of keys, and which pairs of them count.
template <class T>
struct BlockPair {
  std::int64_t keys;  // valid ones
  // Key j is visible to query i of the block where j <= i + shift; at least kBlock if to all.
  std::int64_t shift;

  // With those that only fill the last group of rows: masked or beyond the end.
  FSDPTRAIN_HOST_DEVICE std::int64_t rows() const { return round_up(keys, kTileRows); }
  FSDPTRAIN_HOST_DEVICE bool whole() const { return shift >= kBlock - 1; }
  // The first query that the keys from `key` on need, as the column of a tile.
  FSDPTRAIN_HOST_DEVICE std::int64_t query_begin(std::int64_t key) const {
    const std::int64_t first = key / kTileRows * kTileRows - shift;
    return first <= 0 ? 0 : first / kTileColumns<T> * kTileColumns<T>;
  }
  // The end of the keys that the group of queries at `query` needs.
  FSDPTRAIN_HOST_DEVICE std::int64_t key_end(std::int64_t query) const {
    return max(0, min(keys, query + kTileRows + shift));
  }
};

// scores_KQ = keys queries^T, for visible pairs.
template <class T>
FSDPTRAIN_HOST_DEVICE void score_tile(const BlockPair<T>& pair, T* scores_KQ, const T* keys_KD,
                                      const T* queries_DQ, std::int64_t size,
                                      std::int64_t padded_size) {
  product<false>(
      scores_KQ, kBlock, pair.keys, kBlock, Operand<T>{keys_KD, padded_size, 1}, queries_DQ,
      kBlock, [&](std::int64_t key) __attribute__((always_inline)) {
        return ProductRange{pair.query_begin(key), 0, size};
      });
}

// scores_KQ = -infinity where the key is not visible, in the computed part of the tile.
template <class T>
FSDPTRAIN_HOST_DEVICE void mask_tile(const BlockPair<T>& pair, T* scores_KQ) {
  if (pair.whole()) {
    return;
  }
  for (std::int64_t key = 0; key < pair.rows(); ++key) {
    const std::int64_t visible_from = max(0, min(kBlock, key - pair.shift));
    for (std::int64_t query = pair.query_begin(key); query < visible_from; ++query) {
      scores_KQ[key * kBlock + query] = -kInfinityOf<T>;
    }
  }
}

// out_QD += weights_KQ^T values_KD
template <class T>
FSDPTRAIN_HOST_DEVICE void add_over_keys(const BlockPair<T>& pair, T* out_QD, const T* weights_KQ,
                                         const T* values_KD, std::int64_t padded_size) {
  product<true>(
      out_QD, padded_size, kBlock, padded_size, Operand<T>{weights_KQ, 1, kBlock}, values_KD,
      padded_size, [&](std::int64_t query) __attribute__((always_inline)) {
        return ProductRange{0, 0, pair.key_end(query)};
      });
}

// out_KD += weights_KQ values_QD
template <class T>
FSDPTRAIN_HOST_DEVICE void add_over_queries(const BlockPair<T>& pair, T* out_KD,
                                            const T* weights_KQ, const T* values_QD,
                                            std::int64_t padded_size) {
  product<true>(
      out_KD, padded_size, pair.keys, padded_size, Operand<T>{weights_KQ, kBlock, 1}, values_QD,
      padded_size, [&](std::int64_t key) __attribute__((always_inline)) {
        return ProductRange{0, pair.query_begin(key), kBlock};
      });
}

// An OnlineSoftmax for each query of a block, with the queries down the lanes: over the keys so
// far, the largest score and the sum of exp(score - maximum).
template <class T>
struct BlockSoftmax {
  T maximum[kBlock];
  T sum[kBlock];

  FSDPTRAIN_HOST_DEVICE void reset() {
    for (std::int64_t query = 0; query < kBlock; ++query) {
      maximum[query] = -kInfinityOf<T>;
      sum[query] = T(0);
    }
  }

  // Replaces scores by exp(score - new maximum); correction is what earlier weights of each
  // query are to be multiplied by.
  FSDPTRAIN_HOST_DEVICE void add_tile(const BlockPair<T>& pair, T* scores_KQ, T* correction) {
    T largest[kBlock];
    for (std::int64_t query = 0; query < kBlock; ++query) {
      largest[query] = maximum[query];
    }
    for (std::int64_t key = 0; key < pair.keys; ++key) {
      const T* const scores = scores_KQ + key * kBlock;
      for (std::int64_t query = pair.query_begin(key); query < kBlock; ++query) {
        largest[query] = scores[query] > largest[query] ? scores[query] : largest[query];
      }
    }
    T shift[kBlock];
    T tile_sum[kBlock];
    for (std::int64_t query = 0; query < kBlock; ++query) {
      shift[query] = softmax_shift(largest[query]);
      correction[query] = math::exp(maximum[query] - shift[query]);
      maximum[query] = largest[query];
      tile_sum[query] = T(0);
    }
    for (std::int64_t key = 0; key < pair.keys; ++key) {
      T* const scores = scores_KQ + key * kBlock;
#pragma GCC ivdep
      for (std::int64_t query = pair.query_begin(key); query < kBlock; ++query) {
        const T weight = math::exp(scores[query] - shift[query]);
        scores[query] = weight;
        tile_sum[query] += weight;
      }
    }
    for (std::int64_t query = 0; query < kBlock; ++query) {
      sum[query] = math::fma(sum[query], correction[query], tile_sum[query]);
    }
  }
};

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, head_size, padded_size;

  FSDPTRAIN_HOST_DEVICE AttentionSizes(const View& q, const View& k)
      : batch(q.sizes[0]),
        queries(q.sizes[1]),
        keys(k.sizes[1]),
        heads(q.sizes[2]),
        head_size(q.sizes[3]),
        padded_size(round_up(q.sizes[3], attention_pad(kIsa))) {}

  // The pair of blocks at `query` and `key`; without keys where none is visible.
  template <class T>
  FSDPTRAIN_HOST_DEVICE BlockPair<T> pair(std::int64_t query, std::int64_t key, bool causal) const {
    const std::int64_t shift = causal ? query + keys - queries - key : kBlock;
    const std::int64_t visible = min(kBlock, max(0, kBlock + shift));
    return {min(visible, keys - key), shift};
  }
};

// Up to kAttentionForwardBlocks blocks of queries of one head, which share each packed block of
// keys.
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void forward_blocks(const AttentionForward& args, const AttentionSizes& sizes,
                                          std::int64_t batch, std::int64_t head, std::int64_t begin,
                                          std::int64_t end, T* scratch) {
  const std::int64_t padded = sizes.padded_size;
  const std::int64_t tile = kBlock * padded;
  T* const keys_KD = scratch;
  T* const values_KD = keys_KD + tile;
  T* const scores_KQ = values_KD + tile;
  // One of each for every block of queries.
  T* const queries_DQ = scores_KQ + kBlock * kBlock;
  T* const outs_QD = queries_DQ + kAttentionForwardBlocks * tile;
  BlockSoftmax<T> softmax[kAttentionForwardBlocks];
  const auto q = head_of<const E>(args.q_BTHD, batch, head);
  const auto k = head_of<const E>(args.k_BSHD, batch, head);
  const auto v = head_of<const E>(args.v_BSHD, batch, head);

  const std::int64_t blocks = ceil_div(end - begin, kBlock);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t query = begin + block * kBlock;
    T* const out_QD = outs_QD + block * tile;
    pack_rows(out_QD, padded, kBlock, q, query, min(kBlock, end - query), sizes.head_size,
              static_cast<T>(args.scale));
    transpose_block(queries_DQ + block * tile, out_QD, padded);
    for (std::int64_t index = 0; index < tile; ++index) {
      out_QD[index] = T(0);
    }
    softmax[block].reset();
  }
  for (std::int64_t key = 0; key < sizes.keys; key += kBlock) {
    // The last block of queries sees most.
    const auto most = sizes.pair<T>(begin + (blocks - 1) * kBlock, key, args.causal);
    if (most.keys <= 0) {
      break;
    }
    pack_rows(keys_KD, padded, most.rows(), k, key, most.keys, sizes.head_size, T(1));
    pack_rows(values_KD, padded, most.keys, v, key, most.keys, sizes.head_size, T(1));
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto pair = sizes.pair<T>(begin + block * kBlock, key, args.causal);
      if (pair.keys <= 0) {
        continue;
      }
      T* const out_QD = outs_QD + block * tile;
      score_tile(pair, scores_KQ, keys_KD, queries_DQ + block * tile, sizes.head_size, padded);
      mask_tile(pair, scores_KQ);
      T correction[kBlock];
      softmax[block].add_tile(pair, scores_KQ, correction);
      if (key > 0) {
        for (std::int64_t query = 0; query < kBlock; ++query) {
          for (std::int64_t d = 0; d < padded; ++d) {
            out_QD[query * padded + d] *= correction[query];
          }
        }
      }
      add_over_keys(pair, out_QD, scores_KQ, values_KD, padded);
    }
  }

  const auto out = head_of<E>(args.out_BTHD, batch, head);
  const View& log_sum_exps = args.log_sum_exp_BHT;
  T* const log_sum_exp_T = static_cast<T*>(log_sum_exps.data) + batch * log_sum_exps.strides[0] +
                           head * log_sum_exps.strides[1];
  for (std::int64_t query = begin; query < end; ++query) {
    const BlockSoftmax<T>& state = softmax[(query - begin) / kBlock];
    const std::int64_t lane = (query - begin) % kBlock;
    const T sum = state.sum[lane];
    const T factor = sum == T(0) ? T(0) : T(1) / sum;
    store_row(out, query, outs_QD + (query - begin) * padded, sizes.head_size, factor);
    log_sum_exp_T[query * log_sum_exps.strides[2]] = state.maximum[lane] + math::log(sum);
  }
}

// scores_KQ becomes the weights exp(score - log_sum_exp); dweights_KQ becomes the gradient of the
// scores, weight * (dweight - delta).
template <class T>
FSDPTRAIN_HOST_DEVICE void softmax_backward_tile(const BlockPair<T>& pair, T* scores_KQ,
                                                 T* dweights_KQ, const T* log_sum_exp,
                                                 const T* delta) {
  for (std::int64_t key = 0; key < pair.rows(); ++key) {
    T* const scores = scores_KQ + key * kBlock;
    T* const dweights = dweights_KQ + key * kBlock;
#pragma GCC ivdep
    for (std::int64_t query = pair.query_begin(key); query < kBlock; ++query) {
      const T weight = math::exp(scores[query] - log_sum_exp[query]);
      scores[query] = weight;
      dweights[query] = weight * (dweights[query] - delta[query]);
    }
  }
}

// One head: its keys stay in scratch, its queries pass by in blocks.
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void backward_head(const AttentionBackward& args, const AttentionSizes& sizes,
                                         std::int64_t batch, std::int64_t head, T* scratch) {
  const std::int64_t padded = sizes.padded_size;
  const std::int64_t all_keys = round_up(sizes.keys, kBlock);
  T* const queries_QD = scratch;
  T* const queries_DQ = queries_QD + kBlock * padded;
  T* const dout_QD = queries_DQ + kBlock * padded;
  T* const dout_DQ = dout_QD + kBlock * padded;
  T* const dq_QD = dout_DQ + kBlock * padded;
  T* const weights_KQ = dq_QD + kBlock * padded;
  T* const dscores_KQ = weights_KQ + kBlock * kBlock;
  T* const keys_KD = dscores_KQ + kBlock * kBlock;
  T* const values_KD = keys_KD + all_keys * padded;
  T* const dk_KD = values_KD + all_keys * padded;
  T* const dv_KD = dk_KD + all_keys * padded;
  const auto out = head_of<const E>(args.out_BTHD, batch, head);
  const auto dq = head_of<E>(args.dq_BTHD, batch, head);
  const auto dk = head_of<E>(args.dk_BSHD, batch, head);
  const auto dv = head_of<E>(args.dv_BSHD, batch, head);
  const View& log_sum_exps = args.log_sum_exp_BHT;
  const T* const log_sum_exp_T = static_cast<const T*>(log_sum_exps.data) +
                                 batch * log_sum_exps.strides[0] + head * log_sum_exps.strides[1];

  pack_rows(keys_KD, padded, all_keys, head_of<const E>(args.k_BSHD, batch, head), 0, sizes.keys,
            sizes.head_size, T(1));
  pack_rows(values_KD, padded, all_keys, head_of<const E>(args.v_BSHD, batch, head), 0, sizes.keys,
            sizes.head_size, T(1));
  for (std::int64_t index = 0; index < all_keys * padded; ++index) {
    dk_KD[index] = T(0);
    dv_KD[index] = T(0);
  }
  for (std::int64_t begin = 0; begin < sizes.queries; begin += kBlock) {
    const std::int64_t valid = min(kBlock, sizes.queries - begin);
    // With scaled queries dk needs no factor; dq gets it at the end.
    pack_rows(queries_QD, padded, kBlock, head_of<const E>(args.q_BTHD, batch, head), begin, valid,
              sizes.head_size, static_cast<T>(args.scale));
    transpose_block(queries_DQ, queries_QD, padded);
    pack_rows(dout_QD, padded, kBlock, head_of<const E>(args.dout_BTHD, batch, head), begin, valid,
              sizes.head_size, T(1));
    transpose_block(dout_DQ, dout_QD, padded);
    T log_sum_exp[kBlock];
    T delta[kBlock];
    for (std::int64_t query = 0; query < kBlock; ++query) {
      delta[query] = T(0);
      log_sum_exp[query] = T(0);
    }
    for (std::int64_t query = 0; query < valid; ++query) {
      for (std::int64_t d = 0; d < sizes.head_size; ++d) {
        delta[query] = math::fma(dout_QD[query * padded + d],
                                 load(out.row(begin + query)[d * out.stride]), delta[query]);
      }
      const T value = log_sum_exp_T[(begin + query) * log_sum_exps.strides[2]];
      // A query that saw no key: every weight is to be exp(-infinity).
      log_sum_exp[query] = value == -kInfinityOf<T> ? kInfinityOf<T> : value;
    }
    for (std::int64_t index = 0; index < kBlock * padded; ++index) {
      dq_QD[index] = T(0);
    }
    for (std::int64_t key = 0; key < sizes.keys; key += kBlock) {
      const auto pair = sizes.pair<T>(begin, key, args.causal);
      if (pair.keys <= 0) {
        break;
      }
      const std::int64_t at = key * padded;
      score_tile(pair, weights_KQ, keys_KD + at, queries_DQ, sizes.head_size, padded);
      mask_tile(pair, weights_KQ);
      score_tile(pair, dscores_KQ, values_KD + at, dout_DQ, sizes.head_size, padded);
      softmax_backward_tile(pair, weights_KQ, dscores_KQ, log_sum_exp, delta);
      add_over_queries(pair, dv_KD + at, weights_KQ, dout_QD, padded);
      add_over_queries(pair, dk_KD + at, dscores_KQ, queries_QD, padded);
      add_over_keys(pair, dq_QD, dscores_KQ, keys_KD + at, padded);
    }
    for (std::int64_t query = 0; query < valid; ++query) {
      store_row(dq, begin + query, dq_QD + query * padded, sizes.head_size,
                static_cast<T>(args.scale));
    }
  }
  for (std::int64_t key = 0; key < sizes.keys; ++key) {
    store_row(dk, key, dk_KD + key * padded, sizes.head_size, T(1));
    store_row(dv, key, dv_KD + key * padded, sizes.head_size, T(1));
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::attention_forward<kIsa>(const Launch& launch, const AttentionForward& args,
                                  std::byte* scratch) {
  const AttentionSizes sizes(args.q_BTHD, args.k_BSHD);
  constexpr std::int64_t kTaskQueries = kAttentionForwardBlocks * kBlock;
  const std::int64_t pieces = ceil_div(sizes.queries, kTaskQueries);
  const std::int64_t scratch_size = attention_forward_scratch(sizes.padded_size);
  dispatch_floating(args.q_BTHD.dtype, [&]<class E>() {
    using T = OpMath<E>;
    parallel_for_threads(
        launch, sizes.batch * sizes.heads * pieces, [&](std::int64_t task, int thread) {
          const std::int64_t head = task / pieces;
          // Under a causal mask the last queries take longest: they start first.
          const std::int64_t begin = (pieces - 1 - task % pieces) * kTaskQueries;
          forward_blocks<T, E>(args, sizes, head / sizes.heads, head % sizes.heads, begin,
                               min(sizes.queries, begin + kTaskQueries),
                               reinterpret_cast<T*>(scratch) + thread * scratch_size);
        });
  });
}

template <>
void cpu::attention_backward<kIsa>(const Launch& launch, const AttentionBackward& args,
                                   std::byte* scratch) {
  const AttentionSizes sizes(args.q_BTHD, args.k_BSHD);
  const std::int64_t scratch_size =
      attention_backward_scratch(round_up(sizes.keys, kBlock), sizes.padded_size);
  dispatch_floating(args.q_BTHD.dtype, [&]<class E>() {
    using T = OpMath<E>;
    parallel_for_threads(launch, sizes.batch * sizes.heads, [&](std::int64_t head, int thread) {
      backward_head<T, E>(args, sizes, head / sizes.heads, head % sizes.heads,
                          reinterpret_cast<T*>(scratch) + thread * scratch_size);
    });
  });
}

}  // namespace fsdptrain::kernels
