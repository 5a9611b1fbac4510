// Norm and RoPE of a row that lies in shared memory, in place, channel by channel: for the shapes
// that quad_transform.cuh does not take. Loops stay rolled, because this is compiled into kernels
// that have no register to spare.
//
// Eight lanes share a row and a warp works on four rows at once. A lane owns channel pairs, so both
// partners of a rotation are in its hands and nothing but the statistics crosses lanes.
#pragma once

#include <cmath>

#include "device/norm.cuh"
#include "device/ptx/warp.cuh"
#include "device/rotary.cuh"

namespace qkexport::cuda {

inline constexpr int kLanesPerRow = 8;
inline constexpr int kRowsPerStep = kWarpSize / kLanesPerRow;

// One row of queries or keys and all that its transform reads from memory.
struct TransformRow {
  const AttentionParams& params;
  NormRow norm;
  RotaryRow rotary;
  const RowStatistics* statistics;  // known already (norm_axis "hidden"), or null
  bool active;                      // an inactive row keeps its lanes in step and changes nothing

  QKEXPORT_DEVICE int num_pairs() const {
    return active ? static_cast<int>((params.head_dim + 1) / 2) : 0;
  }
};

QKEXPORT_DEVICE TransformRow query_transform(const KernelArguments& arguments, int64_t batch,
                                             int head, int position, bool active) {
  const AttentionParams& p = arguments.params;
  const RowStatistics* statistics =
      arguments.query_statistics == nullptr
          ? nullptr
          : arguments.query_statistics + batch * p.seqlen_q + position;
  return {p, NormRow(p, p.q_norm_weight, p.q_norm_bias, head, position),
          RotaryRow(p, p.query_rotary, batch, head, position, active), statistics, active};
}

QKEXPORT_DEVICE TransformRow key_transform(const KernelArguments& arguments, int64_t batch,
                                           int head, int position, bool active) {
  const AttentionParams& p = arguments.params;
  const RowStatistics* statistics = arguments.key_statistics == nullptr
                                        ? nullptr
                                        : arguments.key_statistics + batch * p.seqlen_kv + position;
  return {p, NormRow(p, p.k_norm_weight, p.k_norm_bias, head, position),
          RotaryRow(p, p.key_rotary, batch, head, position, active), statistics, active};
}

// A pair as the norm sees it: as stored, or turned where RoPE comes first.
template <class Tile>
QKEXPORT_DEVICE ChannelPair read_pair(Tile tile, int row, int index, const TransformRow& transform,
                                      float& x, float& y) {
  const AttentionParams& p = transform.params;
  const ChannelPair pair = channel_pair(p, index);
  x = to_float(tile.at(row, pair.first));
  y = pair.second < p.head_dim ? to_float(tile.at(row, pair.second)) : 0.0f;
  if (p.rotary == Rotary::kBeforeNorm && pair.rotated) transform.rotary.rotate(x, y, pair, index);
  return pair;
}

// Sum of the channels (squared: of their squared distances from `mean`) over this lane's pairs.
template <class Tile>
QKEXPORT_DEVICE float lane_sum(Tile tile, int row, const TransformRow& transform, float mean,
                               bool squared) {
  float sum = 0.0f;
#pragma unroll 1
  for (int i = lane_index() % kLanesPerRow; i < transform.num_pairs(); i += kLanesPerRow) {
    float x, y;
    const ChannelPair pair = read_pair(tile, row, i, transform, x, y);
    const bool odd_end = pair.second >= transform.params.head_dim;
    x -= mean;
    y = odd_end ? 0.0f : y - mean;
    sum += squared ? x * x + y * y : x + y;
  }
  return sum;
}

// Statistics of a row; every lane of the warp takes part. `sum` gives a lane's share of the sum of
// the channels, or of their squared distances from a mean: (mean, squared) -> float.
template <class Sum>
QKEXPORT_DEVICE RowStatistics row_statistics(const TransformRow& transform, const Sum& sum) {
  const AttentionParams& p = transform.params;
  if (transform.statistics != nullptr) {
    return transform.active ? *transform.statistics : RowStatistics{0.0f, 0.0f};
  }
  const float count = static_cast<float>(p.head_dim);
  RowStatistics statistics{0.0f, 0.0f};
  if (p.qk_norm == QkNorm::kLayer) {
    statistics.mean = group_sum<kLanesPerRow>(sum(0.0f, false)) / count;
  }
  statistics.inverse = inverse_norm(p, group_sum<kLanesPerRow>(sum(statistics.mean, true)), count);
  return statistics;
}

// Replaces the row by its norm and rotation, channel by channel.
template <class Tile>
QKEXPORT_DEVICE void transform_channels(Tile tile, int row, const TransformRow& transform) {
  const AttentionParams& p = transform.params;
  const RowStatistics statistics = row_statistics(transform, [&](float mean, bool squared) {
    return lane_sum(tile, row, transform, mean, squared);
  });
#pragma unroll 1
  for (int i = lane_index() % kLanesPerRow; i < transform.num_pairs(); i += kLanesPerRow) {
    float x, y;
    const ChannelPair pair = read_pair(tile, row, i, transform, x, y);
    const bool has_second = pair.second < p.head_dim;
    x = transform.norm.apply(x, statistics, pair.first);
    if (has_second) y = transform.norm.apply(y, statistics, pair.second);
    if (p.rotary == Rotary::kAfterNorm && pair.rotated) transform.rotary.rotate(x, y, pair, i);
    if (transform.rotary.outside) x = y = NAN;
    from_float(x, tile.at(row, pair.first));
    if (has_second) from_float(y, tile.at(row, pair.second));
  }
}

// ||row||^2 of a row as it is stored, for its eight lanes.
template <class Tile>
QKEXPORT_DEVICE float squared_norm(Tile tile, int row, int channels) {
  float sum = 0.0f;
#pragma unroll 1
  for (int i = lane_index() % kLanesPerRow; i < channels; i += kLanesPerRow) {
    const float x = to_float(tile.at(row, i));
    sum += x * x;
  }
  return group_sum<kLanesPerRow>(sum);
}

}  // namespace qkexport::cuda
