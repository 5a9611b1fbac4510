// Where row j of the keys or values stands: in the cache, or among the new tokens.
#pragma once

#include "device/platform.cuh"
#include "device/tile_loader.cuh"
#include "kernel_arguments.h"

namespace qkexport::cuda {

// Number of valid rows of a batch entry, new tokens included.
QKEXPORT_DEVICE int kv_length(const AttentionParams& p, int64_t batch) {
  if (p.kv_lengths == nullptr) return static_cast<int>(p.seqlen_total);
  const int64_t length = p.kv_lengths[batch];
  return static_cast<int>(length < 0 ? 0 : length > p.seqlen_total ? p.seqlen_total : length);
}

// Row of the sequence where the new tokens begin; negative where a static cache is shorter than
// the new tokens, whose first ones then have no row.
QKEXPORT_DEVICE int fresh_begin(const AttentionParams& p, int64_t batch) {
  if (p.kv_cache == KvCache::kConcat) return static_cast<int>(p.seqlen_past);
  return kv_length(p, batch) - static_cast<int>(p.seqlen_kv);
}

// The rows of one batch entry and kv head. Rows at or past `limit` do not exist.
template <class T>
struct KvRows {
  const T* cached;
  const T* fresh;
  int64_t cached_stride;
  int64_t fresh_stride;
  int fresh_first;
  int fresh_last;
  int limit;

  QKEXPORT_DEVICE KvRows(const AttentionParams& p, const KvSource& source, int64_t batch, int head,
                         int limit)
      : cached_stride(source.cached.row_stride),
        fresh_stride(source.fresh.row_stride),
        fresh_first(fresh_begin(p, batch)),
        fresh_last(fresh_first + source.num_fresh),
        limit(limit) {
    cached = static_cast<const T*>(source.cached.data) + batch * source.cached.batch_stride +
             head * source.cached.head_stride;
    fresh = static_cast<const T*>(source.fresh.data) + batch * source.fresh.batch_stride +
            head * source.fresh.head_stride;
  }

  QKEXPORT_DEVICE RowPointer<T> operator()(int row) const {
    const bool valid = row < limit;
    const bool is_fresh = row >= fresh_first && row < fresh_last;
    const T* base = is_fresh ? fresh : cached;
    const int64_t stride = is_fresh ? fresh_stride : cached_stride;
    const int index = is_fresh ? row - fresh_first : row;
    return {base + (valid ? index * stride : 0), valid};
  }
};

// The rows of one tile for load_tile, from `first` on.
template <class T>
struct KvTileRows {
  const KvRows<T>& rows;
  int first;

  QKEXPORT_DEVICE RowPointer<T> operator()(int row) const { return rows(first + row); }
};

}  // namespace qkexport::cuda
