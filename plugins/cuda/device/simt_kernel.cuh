// The attention kernel without tensor cores: float32 inputs, head_dim above 256, and devices whose
// tensor cores lack the type. Every product is a float fma.
//
// A warp owns kRowsPerWarp query rows. For the scores lane l is key l of a block of 32; for the
// output it is channels 4l .. 4l + 3 of each 128. Keys and values pass through one shared tile in
// pieces of 128 channels, so any head_dim up to 512 fits 48 KiB.
#pragma once

#include "device/epilogue.cuh"
#include "device/key_blocks.cuh"
#include "device/quad_transform.cuh"
#include "device/score_transform.cuh"
#include "device/tile_loader.cuh"
#include "tile_config.cuh"

namespace qkexport::cuda {

inline constexpr int kPieceChannels = 128;
inline constexpr int kSimtBlockN = 32;
inline constexpr int kSimtRowsPerWarp = 4;

template <class T, int kHeadDim>
struct SimtTraits {
  using Element = T;
  static constexpr int kPieces = (kHeadDim + kPieceChannels - 1) / kPieceChannels;
  static constexpr int kThreads = simt_warps(kHeadDim) * kWarpSize;
  static constexpr int kBlockM = simt_block_rows(kHeadDim);
  static constexpr int kPitch = kPieces * kPieceChannels;
  static constexpr int kSharedBytes =
      (kBlockM * kPitch + kSimtBlockN * kPieceChannels) * static_cast<int>(sizeof(float));
};

struct SimtState {
  float m[kSimtRowsPerWarp];
  float d[kSimtRowsPerWarp];  // of this lane's keys
};

using PieceTile = SharedTile<float, kPieceChannels>;

QKEXPORT_DEVICE float dot4(const float* a, const float* b, float sum) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += a[i] * b[i];
  return sum;
}

// scores[r] = q_r . k_lane, over all pieces of the channels.
template <class Traits, class QueryTile>
QKEXPORT_DEVICE void simt_scores(float (&scores)[kSimtRowsPerWarp], QueryTile query,
                                 PieceTile piece, const KvRows<typename Traits::Element>& keys,
                                 int first_key, int head_dim) {
  using T = typename Traits::Element;
  const int first_row = warp_index() * kSimtRowsPerWarp;
#pragma unroll
  for (int r = 0; r < kSimtRowsPerWarp; ++r) scores[r] = 0.0f;
#pragma unroll 1
  for (int channel = 0; channel < head_dim; channel += kPieceChannels) {
    sync_threads();
    load_float_tile<kSimtBlockN, kPieceChannels, Traits::kThreads, T>(
        piece, KvTileRows<T>{keys, first_key}, channel, head_dim);
    sync_threads();
#pragma unroll 4
    for (int chunk = 0; chunk < kPieceChannels / 4; ++chunk) {
      const float* key = piece.chunk(lane_index(), chunk);
#pragma unroll
      for (int r = 0; r < kSimtRowsPerWarp; ++r) {
        scores[r] = dot4(query.chunk(first_row + r, channel / 4 + chunk), key, scores[r]);
      }
    }
  }
}

// Weight of a key that the row may not see. Unlike 0, which a visible key may round to, it adds
// nothing to the output even where the value is NaN.
inline constexpr float kHiddenWeight = -1.0f;

// From q.k to weights, with the running maximum; corrections rescale the output. The maximum is
// subtracted before the change of base: of scores in the hundreds, products with log2(e) would be
// too coarse for float32.
QKEXPORT_DEVICE void simt_softmax(float (&scores)[kSimtRowsPerWarp],
                                  float (&corrections)[kSimtRowsPerWarp], SimtState& state,
                                  const AttentionParams& p, const RowMap& map,
                                  const Visibility& visibility, int64_t batch, int first_key) {
#pragma unroll
  for (int r = 0; r < kSimtRowsPerWarp; ++r) {
    const QueryRow query = map(warp_index() * kSimtRowsPerWarp + r);
    const RowVisibility row(p, visibility, batch, query.head, query.position, query.valid);
    const float bias = row.bias(first_key + lane_index());
    const float scale = row_scale(p, batch, query.head, query.position);
    const float score = bias == -INFINITY ? -INFINITY : capped(p, scores[r] * scale) + bias;
    const float maximum = fmaxf(state.m[r], group_max<kWarpSize>(score));
    const float shift = shift_of(maximum, 1.0f);
    corrections[r] = exp2_approximate((state.m[r] - shift) * kLog2E);
    const float weight = exp2_approximate((score - shift) * kLog2E);
    scores[r] = bias == -INFINITY ? kHiddenWeight : weight;
    state.m[r] = maximum;
    state.d[r] = state.d[r] * corrections[r] + weight;
  }
}

// o += p v for the four channels of this lane in each piece.
template <class Traits>
QKEXPORT_DEVICE void simt_output(float (&o)[kSimtRowsPerWarp][Traits::kPieces][4],
                                 const float (&weights)[kSimtRowsPerWarp],
                                 const float (&corrections)[kSimtRowsPerWarp], PieceTile piece,
                                 const KvRows<typename Traits::Element>& values, int first_key,
                                 int head_dim_v) {
  using T = typename Traits::Element;
#pragma unroll
  for (int i = 0; i < Traits::kPieces; ++i) {
    if (i * kPieceChannels >= head_dim_v) break;
    sync_threads();
    load_float_tile<kSimtBlockN, kPieceChannels, Traits::kThreads, T>(
        piece, KvTileRows<T>{values, first_key}, i * kPieceChannels, head_dim_v);
    sync_threads();
#pragma unroll
    for (int r = 0; r < kSimtRowsPerWarp; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[r][i][e] *= corrections[r];
    }
#pragma unroll 4
    for (int key = 0; key < kSimtBlockN; ++key) {
      const float* value = piece.chunk(key, lane_index());
#pragma unroll
      for (int r = 0; r < kSimtRowsPerWarp; ++r) {
        const float weight = shuffle(weights[r], key);
        if (weight == kHiddenWeight) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e) o[r][i][e] += weight * value[e];
      }
    }
  }
}

template <class Traits>
QKEXPORT_DEVICE void simt_store(const float (&o)[kSimtRowsPerWarp][Traits::kPieces][4],
                                const SimtState& state, const KernelArguments& arguments,
                                const RowMap& map, const BlockCoordinates& block) {
  using T = typename Traits::Element;
  const AttentionParams& p = arguments.params;
#pragma unroll
  for (int r = 0; r < kSimtRowsPerWarp; ++r) {
    const float d = group_sum<kWarpSize>(state.d[r]);
    const QueryRow query = map(warp_index() * kSimtRowsPerWarp + r);
    if (!query.valid) continue;
    const bool partial = arguments.partial_output != nullptr;
    const int64_t row = partial_row(p, block.split, block.batch, query.head, query.position);
    if (partial && lane_index() == 0) {
      arguments.partial_state[row] = {shift_of(state.m[r], 1.0f), d};
    }
    T* output = output_row<T>(p, block.batch, query);
#pragma unroll
    for (int i = 0; i < Traits::kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int channel = i * kPieceChannels + lane_index() * 4 + e;
        if (channel >= p.head_dim_v) continue;
        const float value = o[r][i][e] * inverse_sum(d);
        if (partial) {
          arguments.partial_output[row * p.head_dim_v + channel] = value;
        } else {
          from_float(value, output[channel]);
        }
      }
    }
  }
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads)
    simt_attention_kernel(const __grid_constant__ KernelArguments arguments) {
  using T = typename Traits::Element;
  using QueryTile = SharedTile<float, Traits::kPitch>;
  const AttentionParams& p = arguments.params;
  const BlockCoordinates block = block_coordinates<Traits::kBlockM>(arguments);
  const RowMap map(arguments, block);
  const Visibility visibility(p, block.batch);
  const KeyBlocks blocks =
      key_blocks<Traits::kBlockM, kSimtBlockN>(arguments, map, visibility, block.split);
  const KvRows<T> keys(p, arguments.key, block.batch, block.kv_head, visibility.length);
  const KvRows<T> values(p, arguments.value, block.batch, block.kv_head, visibility.length);
  const QueryTile query{reinterpret_cast<float*>(shared_memory())};
  const PieceTile piece{query.data + Traits::kBlockM * Traits::kPitch};

  load_float_tile<Traits::kBlockM, Traits::kPitch, Traits::kThreads, T>(
      query, QueryTileRows<T>{p, map, block.batch}, 0, static_cast<int>(p.head_dim));
  sync_threads();
  const int first_row = warp_index() * kSimtRowsPerWarp + lane_index() / kLanesPerRow;
  static_assert(kSimtRowsPerWarp == kRowsPerStep, "one step transforms the rows of a warp");
  const QueryRow own = map(first_row);
  transform_row(query, first_row,
                query_transform(arguments, block.batch, own.head, own.position, own.valid),
                arguments.query_in_quads, /*wants_norm=*/false);
  sync_warp();

  SimtState state;
  float o[kSimtRowsPerWarp][Traits::kPieces][4];
#pragma unroll
  for (int r = 0; r < kSimtRowsPerWarp; ++r) {
    state.m[r] = -INFINITY;
    state.d[r] = 0.0f;
#pragma unroll
    for (int i = 0; i < Traits::kPieces; ++i)
      o[r][i][0] = o[r][i][1] = o[r][i][2] = o[r][i][3] = 0.0f;
  }
#pragma unroll 1
  for (int index = blocks.first; index < blocks.last; ++index) {
    const int first_key = index * kSimtBlockN;
    float weights[kSimtRowsPerWarp];
    float corrections[kSimtRowsPerWarp];
    simt_scores<Traits>(weights, query, piece, keys, first_key, static_cast<int>(p.head_dim));
    simt_softmax(weights, corrections, state, p, map, visibility, block.batch, first_key);
    simt_output<Traits>(o, weights, corrections, piece, values, first_key,
                        static_cast<int>(p.head_dim_v));
  }
  simt_store<Traits>(o, state, arguments, map, block);
}

}  // namespace qkexport::cuda
