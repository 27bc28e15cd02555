#include "kernels/cpu/attention.h"

#include "kernels/cpu/attention_mask.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/functors/element.h"
#include "kernels/functors/online_softmax.h"

// Tiles of 64 queries and up to 64 keys. Scores are held with keys as rows and queries as columns
// (scores_KQ), so that maxima and sums over keys run down the lanes and no key is ever transposed.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

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

// scores_KQ = keys queries^T, for visible pairs.
template <class T>
FSDPTRAIN_HOST_DEVICE void score_tile(const BlockPair<T>& pair, T* scores_KQ, const T* keys_KD,
                                      const T* queries_DQ, std::int64_t size,
                                      std::int64_t padded_size) {
  product<false>(
      scores_KQ, kBlock, pair.keys, kBlock, Operand<T>{keys_KD, padded_size, 1}, queries_DQ,
      kBlock, [&](std::int64_t key) __attribute__((always_inline)) {
        return ProductRange{pair.query_begin(key), pair.query_end(key), 0, size};
      });
}

// out_QD += weights_KQ^T values_KD
template <class T>
FSDPTRAIN_HOST_DEVICE void add_over_keys(const BlockPair<T>& pair, T* out_QD, const T* weights_KQ,
                                         const T* values_KD, std::int64_t padded_size) {
  product<true>(
      out_QD, padded_size, kBlock, padded_size, Operand<T>{weights_KQ, 1, kBlock}, values_KD,
      padded_size, [&](std::int64_t query) __attribute__((always_inline)) {
        return ProductRange{0, padded_size, pair.key_begin(query), pair.key_end(query)};
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
        return ProductRange{0, padded_size, pair.query_begin(key), pair.query_end(key)};
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
      const std::int64_t end = pair.query_end(key);
      for (std::int64_t query = pair.query_begin(key); query < end; ++query) {
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
      const std::int64_t end = pair.query_end(key);
#pragma GCC ivdep
      for (std::int64_t query = pair.query_begin(key); query < end; ++query) {
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

// Up to kAttentionForwardBlocks blocks of queries of one head, which share each packed block of
// keys.
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void forward_blocks(const AttentionForward& args, const AttentionSizes& sizes,
                                          const Documents& documents, std::int64_t batch,
                                          std::int64_t head, std::int64_t begin, std::int64_t end,
                                          T* scratch) {
  const std::int64_t padded = sizes.padded_size;
  const std::int64_t tile = kBlock * padded;
  T* const keys_KD = scratch;
  T* const values_KD = keys_KD + tile;
  T* const scores_KQ = values_KD + tile;
  // One of each for every block of queries.
  T* const queries_DQ = scores_KQ + kBlock * kBlock;
  T* const outs_QD = queries_DQ + kAttentionForwardBlocks * tile;
  BlockSoftmax<T> softmax[kAttentionForwardBlocks];
  bool started[kAttentionForwardBlocks];
  const auto q = head_of<const E>(args.q_BTHD, batch, head);
  const auto k = head_of<const E>(args.k_BSGD, batch, head / sizes.group);
  const auto v = head_of<const E>(args.v_BSGD, batch, head / sizes.group);

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
    started[block] = false;
  }
  for (std::int64_t key = sizes.key_begin(begin); key < sizes.key_end(end); key += kBlock) {
    BlockPair<T> pairs[kAttentionForwardBlocks];
    std::int64_t needed = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t query = begin + block * kBlock;
      pairs[block] = sizes.pair<T>(query, key);
      if (documents.apart(query, key)) {
        pairs[block].keys = 0;
      }
      needed = max(needed, pairs[block].keys);
    }
    if (needed == 0) {
      continue;
    }
    pack_rows(keys_KD, padded, round_up(needed, kTileRows), k, key, needed, sizes.head_size, T(1));
    pack_rows(values_KD, padded, needed, v, key, needed, sizes.head_size, T(1));
    for (std::int64_t block = 0; block < blocks; ++block) {
      const BlockPair<T>& pair = pairs[block];
      if (pair.keys == 0) {
        continue;
      }
      const std::int64_t query = begin + block * kBlock;
      T* const out_QD = outs_QD + block * tile;
      score_tile(pair, scores_KQ, keys_KD, queries_DQ + block * tile, sizes.head_size, padded);
      mask_tile(pair, scores_KQ);
      mask_documents(pair, documents, query, min(kBlock, end - query), key, scores_KQ);
      T correction[kBlock];
      softmax[block].add_tile(pair, scores_KQ, correction);
      if (started[block]) {
        for (std::int64_t row = 0; row < kBlock; ++row) {
          for (std::int64_t d = 0; d < padded; ++d) {
            out_QD[row * padded + d] *= correction[row];
          }
        }
      }
      started[block] = true;
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
    const std::int64_t end = pair.query_end(key);
#pragma GCC ivdep
    for (std::int64_t query = pair.query_begin(key); query < end; ++query) {
      const T weight = math::exp(scores[query] - log_sum_exp[query]);
      scores[query] = weight;
      dweights[query] = weight * (dweights[query] - delta[query]);
    }
  }
}

// Where one thread's backward keeps what it works on: a block of queries, and all keys of a head.
template <class T>
struct BackwardScratch {
  T* queries_QD;
  T* queries_DQ;
  T* dout_QD;
  T* dout_DQ;
  T* dq_QD;
  T* weights_KQ;
  T* dscores_KQ;
  T* keys_KD;
  T* values_KD;
  T* dk_KD;
  T* dv_KD;

  FSDPTRAIN_HOST_DEVICE BackwardScratch(const AttentionSizes& sizes, T* scratch) {
    const std::int64_t block = kBlock * sizes.padded_size;
    const std::int64_t all_keys = round_up(sizes.keys, kBlock) * sizes.padded_size;
    queries_QD = scratch;
    queries_DQ = queries_QD + block;
    dout_QD = queries_DQ + block;
    dout_DQ = dout_QD + block;
    dq_QD = dout_DQ + block;
    weights_KQ = dq_QD + block;
    dscores_KQ = weights_KQ + kBlock * kBlock;
    keys_KD = dscores_KQ + kBlock * kBlock;
    values_KD = keys_KD + all_keys;
    dk_KD = values_KD + all_keys;
    dv_KD = dk_KD + all_keys;
  }
};

// The queries of one head from `begin` on, up to a block of them: writes dq, adds to dk and dv.
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void backward_queries(const AttentionBackward& args,
                                            const AttentionSizes& sizes, const Documents& documents,
                                            std::int64_t batch, std::int64_t head,
                                            std::int64_t begin, const BackwardScratch<T>& work) {
  const std::int64_t padded = sizes.padded_size;
  const std::int64_t valid = min(kBlock, sizes.queries - begin);
  const auto out = head_of<const E>(args.out_BTHD, batch, head);
  const View& log_sum_exps = args.log_sum_exp_BHT;
  const T* const log_sum_exp_T = static_cast<const T*>(log_sum_exps.data) +
                                 batch * log_sum_exps.strides[0] + head * log_sum_exps.strides[1];
  // With scaled queries dk needs no factor; dq gets it at the end.
  pack_rows(work.queries_QD, padded, kBlock, head_of<const E>(args.q_BTHD, batch, head), begin,
            valid, sizes.head_size, static_cast<T>(args.scale));
  transpose_block(work.queries_DQ, work.queries_QD, padded);
  pack_rows(work.dout_QD, padded, kBlock, head_of<const E>(args.dout_BTHD, batch, head), begin,
            valid, sizes.head_size, T(1));
  transpose_block(work.dout_DQ, work.dout_QD, padded);
  T log_sum_exp[kBlock];
  T delta[kBlock];
  for (std::int64_t query = 0; query < kBlock; ++query) {
    delta[query] = T(0);
    log_sum_exp[query] = T(0);
  }
  for (std::int64_t query = 0; query < valid; ++query) {
    for (std::int64_t d = 0; d < sizes.head_size; ++d) {
      delta[query] = math::fma(work.dout_QD[query * padded + d],
                               load(out.row(begin + query)[d * out.stride]), delta[query]);
    }
    const T value = log_sum_exp_T[(begin + query) * log_sum_exps.strides[2]];
    // A query that saw no key: every weight is to be exp(-infinity).
    log_sum_exp[query] = value == -kInfinityOf<T> ? kInfinityOf<T> : value;
  }
  for (std::int64_t index = 0; index < kBlock * padded; ++index) {
    work.dq_QD[index] = T(0);
  }
  const std::int64_t key_end = sizes.key_end(begin + valid);
  for (std::int64_t key = sizes.key_begin(begin); key < key_end; key += kBlock) {
    const auto pair = sizes.pair<T>(begin, key);
    if (pair.keys == 0 || documents.apart(begin, key)) {
      continue;
    }
    const std::int64_t at = key * padded;
    score_tile(pair, work.weights_KQ, work.keys_KD + at, work.queries_DQ, sizes.head_size, padded);
    mask_tile(pair, work.weights_KQ);
    mask_documents(pair, documents, begin, valid, key, work.weights_KQ);
    score_tile(pair, work.dscores_KQ, work.values_KD + at, work.dout_DQ, sizes.head_size, padded);
    softmax_backward_tile(pair, work.weights_KQ, work.dscores_KQ, log_sum_exp, delta);
    add_over_queries(pair, work.dv_KD + at, work.weights_KQ, work.dout_QD, padded);
    add_over_queries(pair, work.dk_KD + at, work.dscores_KQ, work.queries_QD, padded);
    add_over_keys(pair, work.dq_QD, work.dscores_KQ, work.keys_KD + at, padded);
  }
  const auto dq = head_of<E>(args.dq_BTHD, batch, head);
  for (std::int64_t query = 0; query < valid; ++query) {
    store_row(dq, begin + query, work.dq_QD + query * padded, sizes.head_size,
              static_cast<T>(args.scale));
  }
}

// One key-value head: its keys stay in scratch, the queries of its query heads pass by in blocks.
template <class T, class E>
FSDPTRAIN_HOST_DEVICE void backward_head(const AttentionBackward& args, const AttentionSizes& sizes,
                                         const Documents& documents, std::int64_t batch,
                                         std::int64_t kv_head, T* scratch) {
  const std::int64_t padded = sizes.padded_size;
  const std::int64_t all_keys = round_up(sizes.keys, kBlock);
  const BackwardScratch<T> work(sizes, scratch);
  pack_rows(work.keys_KD, padded, all_keys, head_of<const E>(args.k_BSGD, batch, kv_head), 0,
            sizes.keys, sizes.head_size, T(1));
  pack_rows(work.values_KD, padded, all_keys, head_of<const E>(args.v_BSGD, batch, kv_head), 0,
            sizes.keys, sizes.head_size, T(1));
  for (std::int64_t index = 0; index < all_keys * padded; ++index) {
    work.dk_KD[index] = T(0);
    work.dv_KD[index] = T(0);
  }
  for (std::int64_t head = kv_head * sizes.group; head < (kv_head + 1) * sizes.group; ++head) {
    for (std::int64_t begin = 0; begin < sizes.queries; begin += kBlock) {
      backward_queries<T, E>(args, sizes, documents, batch, head, begin, work);
    }
  }
  const auto dk = head_of<E>(args.dk_BSGD, batch, kv_head);
  const auto dv = head_of<E>(args.dv_BSGD, batch, kv_head);
  for (std::int64_t key = 0; key < sizes.keys; ++key) {
    store_row(dk, key, work.dk_KD + key * padded, sizes.head_size, T(1));
    store_row(dv, key, work.dv_KD + key * padded, sizes.head_size, T(1));
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::attention_forward<kIsa>(const Launch& launch, const AttentionForward& args,
                                  DocumentRange* ranges, std::byte* scratch) {
  const AttentionSizes sizes(args.q_BTHD, args.k_BSGD, args.mask);
  constexpr std::int64_t kTaskQueries = kAttentionForwardBlocks * kBlock;
  const std::int64_t pieces = ceil_div(sizes.queries, kTaskQueries);
  const std::int64_t scratch_size = attention_forward_scratch(sizes.padded_size);
  find_document_ranges(launch, args.mask, ranges);
  dispatch_floating(args.q_BTHD.dtype, [&]<class E>() {
    using T = OpMath<E>;
    parallel_for_threads(
        launch, sizes.batch * sizes.heads * pieces, [&](std::int64_t task, int thread) {
          const std::int64_t head = task / pieces;
          // Under a causal mask the last queries take longest: they start first.
          const std::int64_t begin = (pieces - 1 - task % pieces) * kTaskQueries;
          const std::int64_t batch = head / sizes.heads;
          forward_blocks<T, E>(args, sizes, Documents(args.mask, ranges, batch), batch,
                               head % sizes.heads, begin, min(sizes.queries, begin + kTaskQueries),
                               reinterpret_cast<T*>(scratch) + thread * scratch_size);
        });
  });
}

template <>
void cpu::attention_backward<kIsa>(const Launch& launch, const AttentionBackward& args,
                                   DocumentRange* ranges, std::byte* scratch) {
  const AttentionSizes sizes(args.q_BTHD, args.k_BSGD, args.mask);
  const std::int64_t kv_heads = args.k_BSGD.sizes[2];
  const std::int64_t scratch_size =
      attention_backward_scratch(round_up(sizes.keys, kBlock), sizes.padded_size);
  find_document_ranges(launch, args.mask, ranges);
  dispatch_floating(args.q_BTHD.dtype, [&]<class E>() {
    using T = OpMath<E>;
    parallel_for_threads(launch, sizes.batch * kv_heads, [&](std::int64_t head, int thread) {
      const std::int64_t batch = head / kv_heads;
      backward_head<T, E>(args, sizes, Documents(args.mask, ranges, batch), batch, head % kv_heads,
                          reinterpret_cast<T*>(scratch) + thread * scratch_size);
    });
  });
}

}  // namespace fsdptrain::kernels
