// Norm and RoPE of a row in shared memory, four channels at once: what transform_row does where
// quads of channels stay together and everything is aligned (KernelArguments says so).
//
// A lane owns two quads a unit: the partners of a rotation of halves, or any two where partners are
// neighbours. Quads of neighbouring lanes are neighbours, so that gains and angles arrive in whole
// sectors.
#pragma once

#include "device/quads.cuh"
#include "device/row_transform.cuh"

namespace qkexport::cuda {

// The quads of one unit. A second quad past the row does not exist.
struct QuadPair {
  int quad[2];
  bool halves;  // partners of a rotation of halves
};

QKEXPORT_DEVICE int num_quads(const AttentionParams& p) {
  return static_cast<int>(p.head_dim) / kQuad;
}

QKEXPORT_DEVICE QuadPair quad_pair(const AttentionParams& p, int unit) {
  const int quads = num_quads(p);
  const bool splits = p.rotary != Rotary::kNone && !p.rotary_interleaved;
  const int half = splits ? static_cast<int>(p.rotary_dim) / (2 * kQuad) : 0;
  if (unit < half) return {{unit, unit + half}, true};
  const int rest = (quads - 2 * half + 1) / 2;
  return {{unit + half, unit + half + rest}, false};
}

// Angles of a quad of the first or second half of the rotated channels.
QKEXPORT_DEVICE void load_angles(const RotaryRow& rotary, int unit, int quad, float (&cos)[kQuad],
                                 float (&sin)[kQuad]) {
  const int64_t at = rotary.base + kQuad * (rotary.full_width ? quad : unit);
  load_quad(rotary.cache->cos, rotary.cache->dtype, at, cos);
  load_quad(rotary.cache->sin, rotary.cache->dtype, at, sin);
}

QKEXPORT_DEVICE void rotate_halves(const RotaryRow& rotary, const QuadPair& pair, int unit,
                                   float (&x)[2][kQuad]) {
  float cos[2][kQuad], sin[2][kQuad];
  load_angles(rotary, unit, pair.quad[0], cos[0], sin[0]);
  if (rotary.full_width) load_angles(rotary, unit, pair.quad[1], cos[1], sin[1]);
#pragma unroll
  for (int e = 0; e < kQuad; ++e) {
    const float first = x[0][e], second = x[1][e];
    const float cos_second = rotary.full_width ? cos[1][e] : cos[0][e];
    const float sin_second = rotary.full_width ? sin[1][e] : sin[0][e];
    x[0][e] = first * cos[0][e] - second * sin[0][e];
    x[1][e] = second * cos_second + first * sin_second;
  }
}

QKEXPORT_DEVICE void rotate_neighbours(const RotaryRow& rotary, int quad, float (&x)[kQuad]) {
  float cos[kQuad], sin[kQuad];
  const RotaryCache& cache = *rotary.cache;
  if (rotary.full_width) {
    load_quad(cache.cos, cache.dtype, rotary.base + kQuad * quad, cos);
    load_quad(cache.sin, cache.dtype, rotary.base + kQuad * quad, sin);
  } else {
    float pair_cos[2], pair_sin[2];
    load_pair(cache.cos, cache.dtype, rotary.base + 2 * quad, pair_cos);
    load_pair(cache.sin, cache.dtype, rotary.base + 2 * quad, pair_sin);
#pragma unroll
    for (int e = 0; e < kQuad; ++e) {
      cos[e] = pair_cos[e / 2];
      sin[e] = pair_sin[e / 2];
    }
  }
#pragma unroll
  for (int e = 0; e < kQuad; e += 2) {
    const float first = x[e], second = x[e + 1];
    x[e] = first * cos[e] - second * sin[e];
    x[e + 1] = second * cos[e + 1] + first * sin[e + 1];
  }
}

QKEXPORT_DEVICE void rotate_unit(const TransformRow& transform, const QuadPair& pair, int unit,
                                 float (&x)[2][kQuad]) {
  const AttentionParams& p = transform.params;
  if (pair.halves) {
    rotate_halves(transform.rotary, pair, unit, x);
    return;
  }
  if (!p.rotary_interleaved) return;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const bool exists = pair.quad[side] < num_quads(p);
    if (exists && kQuad * pair.quad[side] < p.rotary_dim) {
      rotate_neighbours(transform.rotary, pair.quad[side], x[side]);
    }
  }
}

// The two quads of a unit as the norm sees them: as stored, or turned where RoPE comes first. Zeros
// stand for what does not exist.
template <class Tile>
QKEXPORT_DEVICE void load_unit(Tile tile, int row, const TransformRow& transform,
                               const QuadPair& pair, int unit, float (&x)[2][kQuad]) {
  const AttentionParams& p = transform.params;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    x[side][0] = x[side][1] = x[side][2] = x[side][3] = 0.0f;
    if (pair.quad[side] >= num_quads(p)) continue;
    load_quad(&tile.at(row, kQuad * pair.quad[side]), x[side]);
  }
  if (p.rotary == Rotary::kBeforeNorm && transform.active) rotate_unit(transform, pair, unit, x);
}

// As lane_sum, of quads. Channels are read again by each pass: kept in registers, those of a wide
// row would push the main loop's out of theirs.
template <class Tile>
QKEXPORT_DEVICE float quads_sum(Tile tile, int row, const TransformRow& transform, float mean,
                                bool squared) {
  const AttentionParams& p = transform.params;
  const int num_units = (num_quads(p) + 1) / 2;
  float sum = 0.0f;
#pragma unroll 1
  for (int unit = lane_index() % kLanesPerRow; unit < num_units; unit += kLanesPerRow) {
    const QuadPair pair = quad_pair(p, unit);
    float x[2][kQuad];
    load_unit(tile, row, transform, pair, unit, x);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (pair.quad[side] >= num_quads(p)) continue;
#pragma unroll
      for (int e = 0; e < kQuad; ++e) {
        const float distance = x[side][e] - mean;
        sum += squared ? distance * distance : distance;
      }
    }
  }
  return sum;
}

QKEXPORT_DEVICE void normalize_quad(const NormRow& norm, const RowStatistics& statistics, int quad,
                                    float (&x)[kQuad]) {
#pragma unroll
  for (int e = 0; e < kQuad; ++e) x[e] = (x[e] - statistics.mean) * statistics.inverse;
  float gain[kQuad];
  if (norm.weight->data != nullptr) {
    load_quad(norm.weight->data, norm.weight->dtype, norm.weight_base + kQuad * quad, gain);
#pragma unroll
    for (int e = 0; e < kQuad; ++e) x[e] *= gain[e];
  }
  if (norm.bias->data != nullptr) {
    load_quad(norm.bias->data, norm.bias->dtype, norm.bias_base + kQuad * quad, gain);
#pragma unroll
    for (int e = 0; e < kQuad; ++e) x[e] += gain[e];
  }
}

// Replaces a unit by its norm and rotation, and leaves the stored values in x.
template <class Tile>
QKEXPORT_DEVICE void transform_unit(Tile tile, int row, const TransformRow& transform,
                                    const RowStatistics& statistics, const QuadPair& pair, int unit,
                                    float (&x)[2][kQuad]) {
  const AttentionParams& p = transform.params;
  const bool exists[2] = {pair.quad[0] < num_quads(p), pair.quad[1] < num_quads(p)};
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (exists[side]) normalize_quad(transform.norm, statistics, pair.quad[side], x[side]);
  }
  if (p.rotary == Rotary::kAfterNorm) rotate_unit(transform, pair, unit, x);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (!exists[side]) continue;
    if (transform.rotary.outside) x[side][0] = x[side][1] = x[side][2] = x[side][3] = NAN;
    store_quad(&tile.at(row, kQuad * pair.quad[side]), x[side]);
  }
}

// Replaces a row by its norm and rotation; an inactive one stays as it is. Returns ||row||^2 as the
// row then stands, to its eight lanes.
template <class Tile>
QKEXPORT_DEVICE float transform_quads(Tile tile, int row, const TransformRow& transform) {
  const AttentionParams& p = transform.params;
  const int num_units = (num_quads(p) + 1) / 2;
  const RowStatistics statistics = row_statistics(transform, [&](float mean, bool squared) {
    return quads_sum(tile, row, transform, mean, squared);
  });
  float squares = 0.0f;
#pragma unroll 1
  for (int unit = lane_index() % kLanesPerRow; unit < num_units; unit += kLanesPerRow) {
    const QuadPair pair = quad_pair(p, unit);
    float x[2][kQuad];
    load_unit(tile, row, transform, pair, unit, x);
    if (transform.active) transform_unit(tile, row, transform, statistics, pair, unit, x);
#pragma unroll
    for (int e = 0; e < kQuad; ++e) squares += x[0][e] * x[0][e] + x[1][e] * x[1][e];
  }
  return group_sum<kLanesPerRow>(squares);
}

// Norm and RoPE of a row, and ||row||^2 where `wants_norm`; every lane of the warp takes part.
template <class Tile>
QKEXPORT_DEVICE float transform_row(Tile tile, int row, const TransformRow& transform,
                                    bool in_quads, bool wants_norm) {
  if (in_quads) return transform_quads(tile, row, transform);
  transform_channels(tile, row, transform);
  sync_warp();
  return wants_norm ? squared_norm(tile, row, static_cast<int>(transform.params.head_dim)) : 0.0f;
}

// Rows of a warp's step: its four groups of eight lanes take rows 0, 4, 1, 5 or 2, 6, 3, 7 of every
// eight. Two neighbouring groups, 16 lanes of 8 bytes, then read the two halves of the swizzle and
// meet in no bank. `step` counts rows, four a step.
QKEXPORT_DEVICE int step_row(int step) {
  const int group = lane_index() / kLanesPerRow;
  return step / 8 * 8 + group % 2 * 4 + group / 2 + step % 8 / 2;
}

}  // namespace qkexport::cuda
