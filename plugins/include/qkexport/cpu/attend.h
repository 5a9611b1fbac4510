// The phase that computes attention: one row tile of one pair against a part of its keys.
#pragma once

#include <cstdint>

#include "qkexport/cpu/micro_kernel.h"
#include "qkexport/cpu/pack.h"
#include "qkexport/cpu/softmax_block.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// With |s| <= bound (in units of log2 e) for every key of a row, the weights 2^(s - bound) lie in
// [2^(-2 bound), 1]. bound is then as good a reference as the true maximum: nothing overflows, and
// with 2 bound <= 40 no weight is subnormal and the largest is at least 2^-40, so the quotient
// o / d keeps full relative precision unless |v| itself is below 2^-126 + 40. The bound is the
// Cauchy-Schwarz product ||q|| * max ||k||, which after QK norm is small for any input; the slack
// covers the rounding of the norms and of the dot products for head_dim up to 2^12.
constexpr float kLargestSafeBound = 20.0f;
constexpr float kBoundSlack = 1.001f;

struct RowTile {
  const Plan* plan;
  char* workspace;
  Scratch scratch;
  Pair pair;
  ScoreRules rules;
  int64_t first_row;  // of the pair: head within the group * seqlen_q + position
  int64_t num_rows;
  int64_t key_begin;  // the part of the sequence this item reads
  int64_t key_end;
  float key_norm;  // largest norm of the keys, or infinity where it is not known
};

// A block of rows of the tile, at most kRowBlock.
struct RowBlock {
  int64_t first;  // within the tile
  int64_t rows;
  KeyRange any;  // keys that some row sees
  KeyRange all;  // keys that every row sees
  bool bounded;  // no running maximum is needed
  bool started;  // some tile was accumulated
};

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
  constexpr float kLog2E = 0x1.715476p+0f;
  float factor = p.scale;
  if (p.head_scale != nullptr) {
    factor *= p.head_scale[batch * p.head_scale_batch_stride + head * p.head_scale_head_stride +
                           row * p.head_scale_row_stride];
  }
  return rules.base2 ? factor * kLog2E : factor;
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
  for (int64_t d = 0; d < p.head_dim; ++d) dst[d] *= factor;
  const KeyRange visible = visible_keys(p, t.pair.batch, token);
  state.begin = clamp(visible.begin, t.key_begin, t.key_end);
  state.end = clamp(visible.end, t.key_begin, t.key_end);
  state.mask = t.rules.mask == nullptr ? nullptr : mask_row(p.mask, t.pair.batch, head, token);
  state.bound = __builtin_sqrtf(row_squares(dst, p.head_dim, 0.0f)) * t.key_norm * kBoundSlack;
  state.m = -kInfinity;
  state.d = 0.0f;
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
}

// The query block as the score product reads it: [head_dim][rows], or rows when streaming.
inline float* query_block(const RowTile& t, int64_t first) {
  return t.scratch.query + first * t.plan->head_dim;
}

// Rows become [depth][rows]. Depth ascends: a store runs over the lanes past `rows`, which the
// next depth (or the next block) writes again.
inline void pack_query_block(const float* src, int64_t depth, int64_t rows, float* packed) {
  float turned[kVecWidth * kVecWidth];
  for (int64_t d = 0; d < depth; d += kVecWidth) {
    transpose_block(src + d, depth, turned, kVecWidth);
    for (int64_t c = 0; c < kVecWidth; ++c) {
      store(packed + (d + c) * rows, load(turned + c * kVecWidth));
    }
  }
}

inline RowBlock prepare_block(const RowTile& t, int64_t first) {
  const int64_t depth = t.plan->head_dim;
  const int64_t rows = clamp(t.num_rows - first, 0, kRowBlock);
  const bool stream = t.plan->mode == Mode::kStream;
  const RowTransform transform = query_transform(*t.plan, t.workspace);
  RowBlock block = {first, rows, {0, 0}, {t.key_begin, t.key_end}, t.rules.base2, false};
  float* dst = stream ? query_block(t, first) : t.scratch.rows;
  clear(dst, (stream ? rows : kVecWidth) * depth);
  for (int64_t i = 0; i < rows; ++i) {
    Row& state = t.scratch.row_state[first + i];
    load_query_row(t, transform, first + i, dst + i * depth, state);
    grow(block, state);
  }
  if (stream) return block;
  pack_query_block(dst, depth, rows, query_block(t, first));
  return block;
}

// Where a tile of keys and values lies, packed or in rows.
struct KeyTile {
  int64_t origin;  // index of its first key in the total sequence
  const void* keys;
  const void* values;
  int64_t first;       // when streaming: the key of the tile that the pointers point at,
  int64_t key_stride;  // and how far apart rows are
  int64_t value_stride;
  DataType key_type;
  DataType value_type;
  bool finite;  // no value is infinite or NaN; or nothing is known because it does not matter
};

inline void score(const RowTile& t, const KeyTile& tile, const RowBlock& block,
                  const TileColumns& columns) {
  const int64_t depth = t.plan->params->head_dim;
  const float* q = query_block(t, block.first);
  with_row_count(block.rows, [&](auto rows) {
    if (t.plan->mode != Mode::kStream) {
      score_block<rows.value>(q, static_cast<const float*>(tile.keys), t.plan->head_dim * kPanel,
                              depth, columns.begin, columns.end, t.scratch.scores);
      return;
    }
    with_element_type(tile.key_type, [&](auto* tag) {
      const auto* keys = static_cast<decltype(tag)>(const_cast<void*>(tile.keys));
      score_stream<rows.value>(
          q, t.plan->head_dim, keys + (columns.begin - tile.first) * tile.key_stride,
          tile.key_stride, depth, columns.begin, columns.end, t.scratch.scores);
    });
  });
}

inline void accumulate(const RowTile& t, const KeyTile& tile, const RowBlock& block,
                       const TileColumns& columns, const float* factors, Carry carry) {
  const int64_t width = t.plan->params->head_dim_v, o_row = t.plan->head_dim_v;
  float* o = t.scratch.output + block.first * o_row;
  const float* p = t.scratch.scores;
  with_row_count(block.rows, [&](auto rows) {
    if (t.plan->mode != Mode::kStream) {
      value_block<rows.value>(p, static_cast<const float*>(tile.values), columns.begin, columns.end,
                              width, factors, carry, o_row, o);
      return;
    }
    with_element_type(tile.value_type, [&](auto* tag) {
      const auto* values = static_cast<decltype(tag)>(const_cast<void*>(tile.values));
      value_stream<rows.value>(
          p + columns.begin, values + (columns.begin - tile.first) * tile.value_stride,
          tile.value_stride, columns.end - columns.begin, width, factors, carry, o_row, o);
    });
  });
}

inline float value_at(const RowTile& t, const KeyTile& tile, int64_t key, int64_t channel) {
  if (t.plan->mode == Mode::kStream) {
    const int64_t row = key - tile.first;
    return load_scalar(tile.values, tile.value_type, row * tile.value_stride + channel);
  }
  const float* values = static_cast<const float*>(tile.values);
  return values[channel / kPanel * (kTileKeys * kPanel) + key * kPanel + channel % kPanel];
}

// The value product when a value is infinite or NaN and some row may not see it: 0 * NaN must not
// reach that row. One element at a time; this is not the common case.
inline void accumulate_seen(const RowTile& t, const KeyTile& tile, const RowBlock& block,
                            const TileColumns& columns, const float* factors, Carry carry) {
  const int64_t width = t.plan->params->head_dim_v;
  for (int64_t i = 0; i < block.rows; ++i) {
    float* o = t.scratch.output + (block.first + i) * t.plan->head_dim_v;
    for (int64_t c = 0; c < width; ++c) {
      float x = carry == Carry::kReplace ? 0.0f : o[c];
      if (carry == Carry::kRescale) x *= factors[i];
      for (int64_t key = columns.begin; key < columns.end; ++key) {
        if (t.scratch.hidden[i * kTileKeys + key]) continue;
        x += t.scratch.scores[i * kTileKeys + key] * value_at(t, tile, key, c);
      }
      o[c] = x;
    }
  }
}

// Scores of the block become weights. Fills the factors of the running output.
inline Carry weigh(const RowTile& t, const RowBlock& block, const TileColumns& columns, bool full,
                   bool careful, float* factors) {
  bool rescale = false;
  for (int64_t i = 0; i < block.rows; ++i) {
    Row& row = t.scratch.row_state[block.first + i];
    float* s = t.scratch.scores + i * kTileKeys;
    const bool finished = full && t.rules.softcap == 0.0f;
    const float seen = finished ? (block.bounded ? 0.0f : largest(columns, s))
                                : finish_scores(t.rules, row, columns, s);
    if (careful) remember_hidden(columns, s, t.scratch.hidden + i * kTileKeys);
    if (block.bounded) {
      row.m = row.bound;
      row.d += exponentiate(true, columns, row.bound, s);
      continue;
    }
    factors[i] = online_softmax(t.rules.base2, columns, seen, s, row);
    rescale = rescale || factors[i] != 1.0f;
  }
  if (!block.started) return Carry::kReplace;
  return rescale ? Carry::kRescale : Carry::kKeep;
}

inline TileColumns visible_columns(const RowBlock& block, int64_t origin) {
  return {origin, clamp(block.any.begin - origin, 0, kTileKeys),
          clamp(block.any.end - origin, 0, kTileKeys)};
}

// Whether every row sees every key of the tile, and the tile has all its columns.
inline bool sees_all(const RowTile& t, const RowBlock& block, int64_t origin) {
  return t.rules.mask == nullptr && block.all.begin <= origin &&
         block.all.end >= origin + kTileKeys;
}

inline void attend_block(const RowTile& t, const KeyTile& tile, RowBlock& block) {
  const TileColumns columns = visible_columns(block, tile.origin);
  if (columns.begin >= columns.end) return;
  const bool full = sees_all(t, block, tile.origin);
  const bool careful = !full && !tile.finite;
  float factors[kRowBlock];
  score(t, tile, block, columns);
  const Carry carry = weigh(t, block, columns, full, careful, factors);
  if (careful) {
    accumulate_seen(t, tile, block, columns, factors, carry);
  } else {
    accumulate(t, tile, block, columns, factors, carry);
  }
  block.started = true;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
