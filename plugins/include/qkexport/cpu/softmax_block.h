// Online softmax of one row over the columns of a key tile.
#pragma once

#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/cpu/elements.h"
#include "qkexport/cpu/tile_sizes.h"
#include "qkexport/cpu/vec_math.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

constexpr float kInfinity = __builtin_inff();

// What a query row needs while its tile runs. Columns are counted in the total sequence.
struct Row {
  int64_t begin;  // visible keys
  int64_t end;
  const char* mask;  // row of attn_mask, or null
  float scale;       // applied to the scores when they could not be folded into the query
  float bound;       // no score exceeds it in magnitude; used when the block is bounded
  float m;           // running maximum
  float d;           // running sum of weights
};

// How scores become weights; one for a whole call.
struct ScoreRules {
  // Scores arrive in units of log2(e), so that exp2 serves. Not with softcap or an additive
  // mask: finfo.min * log2(e) would overflow to -inf, which means "not visible".
  bool base2;
  float softcap;
  const AttentionMask* mask;  // null: none
};

// The columns [begin, end) of the tile whose first key is `origin`.
struct TileColumns {
  int64_t origin;
  int64_t begin;
  int64_t end;
};

inline Vec add_mask(const char* mask, DataType type, int64_t column, int64_t n, Vec s) {
  with_element_type(type, [&](auto* tag) {
    const auto* at = reinterpret_cast<decltype(tag)>(const_cast<char*>(mask)) + column;
    s = add(s, n >= kVecWidth ? load_as_float(at) : load_as_float_n(at, n));
  });
  return s;
}

// The same value for all columns.
inline Vec apply_mask_scalar(const AttentionMask& mask, const char* row, Vec s) {
  if (mask.dtype == DataType::kBool) return *row ? s : splat(-kInfinity);
  return add(s, splat(load_scalar(row, mask.dtype, 0)));
}

inline Vec apply_mask(const AttentionMask& mask, const char* row, int64_t column, int64_t n,
                      Vec s) {
  if (mask.column_stride == 0) return apply_mask_scalar(mask, row, s);
  if (mask.dtype == DataType::kBool) {
    const int64_t lanes = n < kVecWidth ? n : kVecWidth;
    return select_bytes(s, reinterpret_cast<const uint8_t*>(row) + column, lanes,
                        splat(-kInfinity));
  }
  return add_mask(row, mask.dtype, column, n, s);
}

// Softcap, mask and visibility, in that order. Columns that the row may not see become -inf,
// whatever they held.
inline void finish_scores(const ScoreRules& rules, const Row& row, const TileColumns& tile,
                          float* s) {
  for (int64_t c = tile.begin / kVecWidth * kVecWidth; c < tile.end; c += kVecWidth) {
    const int64_t column = tile.origin + c;
    Vec x = load(s + c);
    if (rules.softcap != 0.0f) {
      x = mul(splat(rules.softcap), tanh(div(x, splat(rules.softcap))));
    }
    const int64_t n = row.end - column;
    if (row.mask != nullptr && n > 0) x = apply_mask(*rules.mask, row.mask, column, n, x);
    x = select_lanes(x, row.begin - column, n, splat(-kInfinity));
    store(s + c, x);
  }
}

inline Vec weight(bool base2, Vec s, float m) {
  const Vec x = sub(s, splat(m));
  return base2 ? exp2(x) : exp(x);
}

// Scores become weights in place. Returns the sum.
inline float exponentiate(bool base2, const TileColumns& tile, float m, float* s) {
  Vec total = splat(0.0f);
  for (int64_t c = tile.begin / kVecWidth * kVecWidth; c < tile.end; c += kVecWidth) {
    const Vec p = weight(base2, load(s + c), m);
    total = add(total, p);
    store(s + c, p);
  }
  return sum(total);
}

// The largest score; NaN may be dropped here, the weights bring it back.
inline float largest(const TileColumns& tile, const float* s) {
  Vec result = splat(-kInfinity);
  for (int64_t c = tile.begin / kVecWidth * kVecWidth; c < tile.end; c += kVecWidth) {
    result = max(load(s + c), result);
  }
  return maximum(result);
}

inline float exp_scalar(bool base2, float x) {
  float lanes[kVecWidth];
  store(lanes, base2 ? exp2(splat(x)) : exp(splat(x)));
  return lanes[0];
}

// One step of the online softmax. Returns the factor for what the row accumulated so far.
inline float online_softmax(bool base2, const TileColumns& tile, float* s, Row& row) {
  const float seen = largest(tile, s);
  const float m = seen > row.m ? seen : row.m;
  // While a row has seen no key, m is -inf; any finite value serves instead.
  const float reference = m == -kInfinity ? 0.0f : m;
  const float factor = row.m == m ? 1.0f : exp_scalar(base2, row.m - reference);
  row.d = row.d * factor + exponentiate(base2, tile, reference, s);
  row.m = m;
  return factor;
}

// Scores that a hidden key left at -inf become -0.0 in place of +0.0, so that a careful product
// can tell "hidden" from "visible with a weight that underflowed". Call before the softmax.
inline void remember_hidden(const TileColumns& tile, const float* s, uint8_t* hidden) {
  for (int64_t c = tile.begin; c < tile.end; ++c) hidden[c] = s[c] == -kInfinity;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
