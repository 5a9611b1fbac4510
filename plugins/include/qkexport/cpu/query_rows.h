// Query rows on their way into a block: norm, RoPE, scale, and what each row may see.
#pragma once

#include <cstdint>

#include "qkexport/cpu/row_tile.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

inline ScoreRules score_rules(const AttentionParams& p) {
  const bool additive = p.mask.data != nullptr && p.mask.dtype != DataType::kBool;
  return {!additive && p.softcap == 0.0f, p.softcap, p.mask.data == nullptr ? nullptr : &p.mask};
}

inline const char* mask_row(const AttentionMask& m, int64_t batch, int64_t head, int64_t row) {
  const int64_t offset =
      batch % m.batch_size * m.batch_stride + head * m.head_stride + row * m.row_stride;
  return static_cast<const char*>(m.data) + offset * element_size(m.dtype);
}

inline float score_factor(const AttentionParams& p, const ScoreRules& rules, int64_t batch,
                          int64_t head, int64_t row) {
  float factor = p.scale;
  if (p.head_scale != nullptr) {
    factor *= p.head_scale[batch * p.head_scale_batch_stride + head * p.head_scale_head_stride +
                           row * p.head_scale_row_stride];
  }
  return rules.base2 ? factor * kLog2E : factor;
}

inline float row_norm(const float* row, int64_t width) {
  return __builtin_sqrtf(row_squares(row, width, 0.0f));
}

inline bool query_packs(const float* row, int64_t width) {
  return fallback() == nullptr || norm_packs(row_norm(row, width));
}

// Normalizes, rotates and scales one query row into dst [head_dim padded with zeros].
inline void load_query_row(const RowTile& t, const RowTransform& transform, int64_t tile_row,
                           float* dst, Row& state) {
  const AttentionParams& p = *t.plan->params;
  const int64_t pair_row = t.first_row + tile_row;
  const int64_t head = t.pair.head * t.plan->group_size + pair_row / p.seqlen_q;
  const int64_t token = pair_row % p.seqlen_q;
  if (token + kRowsAhead < p.seqlen_q) {
    prefetch_row(row_address(p.query, p.dtype, t.pair.batch, head, token + kRowsAhead),
                 p.head_dim * element_size(p.dtype));
  }
  load_row(row_address(p.query, p.dtype, t.pair.batch, head, token), p.dtype, 0, p.head_dim, dst);
  transform_row(transform, t.pair.batch, head, token, dst, t.scratch.transform);
  const float factor = score_factor(p, t.rules, t.pair.batch, head, token);
  for (int64_t d = 0; d < t.plan->head_dim; d += kVecWidth) {
    store(dst + d, mul(load(dst + d), splat(factor)));
  }
  const KeyRange visible = visible_keys(p, t.pair.batch, token);
  state.begin = clamp(visible.begin, t.key_begin, t.key_end);
  state.end = clamp(visible.end, t.key_begin, t.key_end);
  state.mask = t.rules.mask == nullptr ? nullptr : mask_row(p.mask, t.pair.batch, head, token);
  state.bound = kInfinity;
  if (t.rules.base2 && t.key_norm < kInfinity) {
    state.bound = row_norm(dst, t.plan->head_dim) * t.key_norm * kBoundSlack;
  }
  state.m = -kInfinity;
  state.d = 0.0f;
  store(state.sums, splat(0.0f));
}

inline void grow(RowBlock& block, const Row& row) {
  if (row.begin < row.end) {
    const bool empty = block.any.begin == block.any.end;
    if (empty || row.begin < block.any.begin) block.any.begin = row.begin;
    if (empty || row.end > block.any.end) block.any.end = row.end;
  }
  if (row.begin > block.all.begin) block.all.begin = row.begin;
  if (row.end < block.all.end) block.all.end = row.end;
  block.bounded = block.bounded && row.bound <= kLargestSafeBound;
  if (row.bound > block.bound) block.bound = row.bound;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
