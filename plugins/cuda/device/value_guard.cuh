// Keeps an infinite or NaN value away from the rows that may not see its key.
//
// A hidden key has weight 0, but 0 * NaN is NaN. In blocks of keys that some rows see in part, the
// value tile is searched; where anything is found (never, in a healthy model) those elements become
// zero for the product and are added afterwards to the rows that do see them.
#pragma once

#include "device/fragments.cuh"
#include "device/query_rows.cuh"
#include "device/visibility.cuh"

namespace qkexport::cuda {

template <int kRows, int kThreads, class Tile>
QKEXPORT_DEVICE bool tile_has_nonfinite(Tile tile) {
  using T = typename Tile::Element;
  constexpr int kWords = kRows * Tile::kPitch / 2;
  const auto* words = reinterpret_cast<const uint4*>(tile.data);
  bool found = false;
#pragma unroll
  for (int i = thread_index(); i < kWords / 4; i += kThreads) {
    const uint4 word = words[i];
    found |= has_nonfinite<T>(word.x) | has_nonfinite<T>(word.y) | has_nonfinite<T>(word.z) |
             has_nonfinite<T>(word.w);
  }
  return sync_threads_or(found);
}

template <int kRows, int kThreads, class Tile>
QKEXPORT_DEVICE void clear_nonfinite(Tile tile) {
#pragma unroll 1
  for (int i = thread_index(); i < kRows * Tile::kPitch; i += kThreads) {
    if (is_nonfinite(tile.data[i])) tile.data[i].bits = 0;
  }
  sync_threads();
}

// Adds what clear_nonfinite removed, read again from memory. The weight is positive wherever the
// key is visible, so inf and NaN enter as they are.
template <int kBlockN, int kRowFragments, int kHeadDim, class T>
QKEXPORT_DEVICE void add_nonfinite(Accumulator<kRowFragments, kHeadDim>& o,
                                   const AttentionParams& p, const KvRows<T>& values,
                                   const RowMap& map, const Visibility& visibility, int64_t batch,
                                   int first_row, int first_key) {
#pragma unroll 1
  for (int key = first_key; key < first_key + kBlockN; ++key) {
    const RowPointer<T> value_row = values(key);
    if (!value_row.valid) return;
    bool sees[kRowFragments][2];
#pragma unroll
    for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const QueryRow query = map(first_row + fragment_row(m, 2 * r));
        const RowVisibility row(p, visibility, batch, query.head, query.position, query.valid);
        sees[m][r] = row.bias(key) != -INFINITY;
      }
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int channel = fragment_column(n, e);
        if (channel >= p.head_dim_v) continue;
        const T value = value_row.data[channel];
        if (!is_nonfinite(value)) continue;
#pragma unroll
        for (int m = 0; m < kRowFragments; ++m) {
          if (sees[m][0]) o.value[m][n][e] += to_float(value);
          if (sees[m][1]) o.value[m][n][2 + e] += to_float(value);
        }
      }
    }
  }
}

}  // namespace qkexport::cuda
