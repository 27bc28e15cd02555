#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/tile_product.h"

// Which pairs of queries and keys a tile of attention is made of: positions, windows, documents.
// Tiles are 64 queries by up to 64 keys, with keys as rows (scores_KQ).
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

constexpr std::int64_t kBlock = kAttentionBlock;
static_assert(kBlock % kTileRows == 0 && kBlock % kTileColumns<float> == 0 &&
                  attention_pad(kIsa) % kTileColumns<float> == 0,
              "blocks and padded heads hold whole register tiles");
static_assert(kBlock <= kProductRows, "a block is a whole product");

template <class T>
constexpr T kInfinityOf = static_cast<T>(__builtin_inf());

// Of a power of two; negative values are rounded down too.
FSDPTRAIN_HOST_DEVICE std::int64_t round_down(std::int64_t value, std::int64_t multiple) {
  return value & -multiple;
}
FSDPTRAIN_HOST_DEVICE std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

// A block of queries against a block of keys, and which pairs of them count.
template <class T>
struct BlockPair {
  std::int64_t keys;  // up to the last one that is visible; 0 where none is
  // Key j is visible to query i of the block where i + first <= j <= i + last.
  std::int64_t first;
  std::int64_t last;

  // With those that only fill the last group of rows: masked or beyond the end.
  FSDPTRAIN_HOST_DEVICE std::int64_t rows() const { return round_up(keys, kTileRows); }
  FSDPTRAIN_HOST_DEVICE bool whole() const { return last >= kBlock - 1 && first <= 1 - kBlock; }
  // The queries that see a key of the group of rows with `key`, in whole tiles of columns.
  FSDPTRAIN_HOST_DEVICE std::int64_t query_begin(std::int64_t key) const {
    return max(0, round_down(round_down(key, kTileRows) - last, kTileColumns<T>));
  }
  FSDPTRAIN_HOST_DEVICE std::int64_t query_end(std::int64_t key) const {
    const std::int64_t query = round_down(key, kTileRows) + kTileRows - first;
    return max(0, min(kBlock, round_down(query + kTileColumns<T> - 1, kTileColumns<T>)));
  }
  // The keys that the group of queries at `query` sees.
  FSDPTRAIN_HOST_DEVICE std::int64_t key_begin(std::int64_t query) const {
    return max(0, query + first);
  }
  FSDPTRAIN_HOST_DEVICE std::int64_t key_end(std::int64_t query) const {
    return max(0, min(keys, query + kTileRows + last));
  }
};

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, group, head_size, padded_size;
  // How far before and behind its own position a query sees keys.
  std::int64_t before, behind;

  FSDPTRAIN_HOST_DEVICE AttentionSizes(const View& q, const View& k, const AttentionMask& mask)
      : batch(q.sizes[0]),
        queries(q.sizes[1]),
        keys(k.sizes[1]),
        heads(q.sizes[2]),
        group(k.sizes[2] == 0 ? 1 : q.sizes[2] / k.sizes[2]),
        head_size(q.sizes[3]),
        padded_size(round_up(q.sizes[3], attention_pad(kIsa))) {
    const std::int64_t all = queries + keys + kBlock;
    before = mask.window > 0 ? min(mask.window - 1, all) : all;
    behind = mask.causal ? 0 : before;
  }

  // The position among the keys that a query has itself.
  FSDPTRAIN_HOST_DEVICE std::int64_t own_key(std::int64_t query) const {
    return query + keys - queries;
  }
  // The blocks of keys that queries [begin, end) see are those at key_begin(begin), ... up to
  // key_end(end).
  FSDPTRAIN_HOST_DEVICE std::int64_t key_begin(std::int64_t begin) const {
    return max(0, own_key(begin) - before) / kBlock * kBlock;
  }
  FSDPTRAIN_HOST_DEVICE std::int64_t key_end(std::int64_t end) const {
    return min(keys, own_key(end) + behind);
  }

  // The pair of blocks at `query` and `key`; without keys where none is visible.
  template <class T>
  FSDPTRAIN_HOST_DEVICE BlockPair<T> pair(std::int64_t query, std::int64_t key) const {
    const std::int64_t first = own_key(query) - before - key;
    const std::int64_t last = own_key(query) + behind - key;
    const std::int64_t visible = min(min(kBlock, keys - key), max(0, kBlock + last));
    return {first < visible ? visible : 0, first, last};
  }
};

// scores_KQ = -infinity where the key is not visible, in the computed part of the tile.
template <class T>
FSDPTRAIN_HOST_DEVICE void mask_tile(const BlockPair<T>& pair, T* scores_KQ) {
  if (pair.whole()) {
    return;
  }
  for (std::int64_t key = 0; key < pair.rows(); ++key) {
    T* const scores = scores_KQ + key * kBlock;
    const std::int64_t visible_from = max(0, min(kBlock, key - pair.last));
    const std::int64_t visible_to = max(0, min(kBlock, key - pair.first + 1));
    for (std::int64_t query = pair.query_begin(key); query < visible_from; ++query) {
      scores[query] = -kInfinityOf<T>;
    }
    for (std::int64_t query = max(pair.query_begin(key), visible_to); query < pair.query_end(key);
         ++query) {
      scores[query] = -kInfinityOf<T>;
    }
  }
}

// The documents of one sample, if there are any.
struct Documents {
  const std::int64_t* ids = nullptr;
  std::int64_t stride = 0;
  const DocumentRange* ranges = nullptr;

  FSDPTRAIN_HOST_DEVICE Documents(const AttentionMask& mask, const DocumentRange* all_ranges,
                                  std::int64_t batch) {
    if (mask.has_documents) {
      const View& view = mask.document_ids_BT;
      ids = static_cast<const std::int64_t*>(view.data) + batch * view.strides[0];
      stride = view.strides[1];
      ranges = all_ranges + batch * document_blocks(view.sizes[1]);
    }
  }

  // Whether the blocks at these positions have no document in common, as far as ranges tell.
  FSDPTRAIN_HOST_DEVICE bool apart(std::int64_t query, std::int64_t key) const {
    if (ids == nullptr) {
      return false;
    }
    const DocumentRange& a = ranges[query / kBlock];
    const DocumentRange& b = ranges[key / kBlock];
    return a.largest < b.least || b.largest < a.least;
  }
  // Whether both blocks are of one document.
  FSDPTRAIN_HOST_DEVICE bool one(std::int64_t query, std::int64_t key) const {
    if (ids == nullptr) {
      return true;
    }
    const DocumentRange& a = ranges[query / kBlock];
    const DocumentRange& b = ranges[key / kBlock];
    return a.least == a.largest && b.least == b.largest && a.least == b.least;
  }
  FSDPTRAIN_HOST_DEVICE std::int64_t at(std::int64_t token) const { return ids[token * stride]; }
};

// scores_KQ = -infinity for pairs of different documents: of the blocks at `query_begin`, with
// `valid` queries, and `key_begin`.
template <class T>
FSDPTRAIN_HOST_DEVICE void mask_documents(const BlockPair<T>& pair, const Documents& documents,
                                          std::int64_t query_begin, std::int64_t valid,
                                          std::int64_t key_begin, T* scores_KQ) {
  if (documents.one(query_begin, key_begin)) {
    return;
  }
  std::int64_t query_ids[kBlock];
  for (std::int64_t query = 0; query < kBlock; ++query) {
    query_ids[query] = documents.at(query_begin + min(query, valid - 1));
  }
  for (std::int64_t key = 0; key < pair.keys; ++key) {
    T* const scores = scores_KQ + key * kBlock;
    const std::int64_t id = documents.at(key_begin + key);
    for (std::int64_t query = pair.query_begin(key); query < pair.query_end(key); ++query) {
      scores[query] = query_ids[query] == id ? scores[query] : -kInfinityOf<T>;
    }
  }
}

// Fills the ranges of all blocks of all samples.
FSDPTRAIN_HOST_DEVICE void find_document_ranges(const Launch& launch, const AttentionMask& mask,
                                                DocumentRange* ranges) {
  if (!mask.has_documents) {
    return;
  }
  const View& ids = mask.document_ids_BT;
  const std::int64_t blocks = document_blocks(ids.sizes[1]);
  parallel_blocks(launch, ids.sizes[0] * blocks, 256, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const Documents documents(mask, ranges, block / blocks);
      const std::int64_t begin = block % blocks * kBlock;
      const std::int64_t end = min(ids.sizes[1], begin + kBlock);
      DocumentRange range{documents.at(begin), documents.at(begin)};
      for (std::int64_t token = begin + 1; token < end; ++token) {
        range.least = min(range.least, documents.at(token));
        range.largest = max(range.largest, documents.at(token));
      }
      ranges[block] = range;
    }
  });
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
