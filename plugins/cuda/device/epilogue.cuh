// The end of the attention kernel: o / d to the output, or to the partial results of split keys.
#pragma once

#include "device/query_rows.cuh"
#include "device/softmax_state.cuh"

namespace qkexport::cuda {

// 1 / d, and 0 for a row that saw no key.
QKEXPORT_DEVICE float inverse_sum(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

template <class T>
QKEXPORT_DEVICE T* output_row(const AttentionParams& p, int64_t batch, const QueryRow& query) {
  return static_cast<T*>(p.output.data) + batch * p.output.batch_stride +
         query.head * p.output.head_stride + query.position * p.output.row_stride;
}

// Through the warp's own rows of the query tile, so that whole 16-byte chunks reach memory.
template <int kRowFragments, int kHeadDim, class Tile>
QKEXPORT_DEVICE void store_output(const Accumulator<kRowFragments, kHeadDim>& o,
                                  const SoftmaxState<kRowFragments>& state, Tile tile,
                                  const KernelArguments& arguments, const RowMap& map,
                                  int64_t batch, int first_row) {
  using T = typename Tile::Element;
  const AttentionParams& p = arguments.params;
  sync_warp();
#pragma unroll
  for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float scale = inverse_sum(state.d[m][r]);
      const int row = first_row + fragment_row(m, 2 * r);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        const float* pair = &o.value[m][n][2 * r];
        *reinterpret_cast<uint32_t*>(&tile.at(row, fragment_column(n, 0))) =
            pack_pair<T>(pair[0] * scale, pair[1] * scale);
      }
    }
  }
  sync_warp();
  const int channels = static_cast<int>(p.head_dim_v);
  constexpr int kChunks = kHeadDim / Tile::kChunk;
#pragma unroll 1
  for (int i = lane_index(); i < kRowFragments * 16 * kChunks; i += kWarpSize) {
    const int row = first_row + i / kChunks;
    const int chunk = i % kChunks;
    if (chunk * Tile::kChunk >= channels) continue;
    const QueryRow query = map(row);
    if (!query.valid) continue;
    const T* source = tile.chunk(row, chunk);
    T* target = output_row<T>(p, batch, query) + chunk * Tile::kChunk;
    if (arguments.output_vectorized) {
      *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
      continue;
    }
    for (int e = 0; e < Tile::kChunk && chunk * Tile::kChunk + e < channels; ++e) {
      target[e] = source[e];
    }
  }
}

// Index of a query row among the partial results of one split: [S, B, H, Sq].
QKEXPORT_DEVICE int64_t partial_row(const AttentionParams& p, int split, int64_t batch, int head,
                                    int position) {
  return ((split * p.batch_size + batch) * p.num_heads + head) * p.seqlen_q + position;
}

template <int kRowFragments, int kHeadDim>
QKEXPORT_DEVICE void store_partial(const Accumulator<kRowFragments, kHeadDim>& o,
                                   const SoftmaxState<kRowFragments>& state, float factor,
                                   const KernelArguments& arguments, const RowMap& map,
                                   const BlockCoordinates& block, int first_row) {
  const AttentionParams& p = arguments.params;
#pragma unroll
  for (int m = 0; m < kRowFragments; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryRow query = map(first_row + fragment_row(m, 2 * r));
      if (!query.valid) continue;
      const int64_t row = partial_row(p, block.split, block.batch, query.head, query.position);
      const float d = state.d[m][r];
      const float scale = inverse_sum(d);
      if (lane_index() % 4 == 0) {
        arguments.partial_state[row] = {shift_of(state.m[m][r], factor), d};
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          const int channel = fragment_column(n, e);
          if (channel >= p.head_dim_v) continue;
          arguments.partial_output[row * p.head_dim_v + channel] = o.value[m][n][e] * scale;
        }
      }
    }
  }
}

}  // namespace qkexport::cuda
