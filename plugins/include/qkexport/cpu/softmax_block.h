// Online softmax of one row over the columns of a key tile.
#pragma once

#include <cstdint>
#include <type_traits>

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
  const char* mask;       // row of attn_mask, or null
  float scale;            // applied to the scores when they could not be folded into the query
  float bound;            // no score exceeds it in magnitude
  float m;                // running maximum
  float d;                // running sum of weights
  float sums[kVecWidth];  // the same lane by lane, while tiles are added
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

// The forms of a mask row; each applies itself to a vector of scores that starts at `column`, a
// whole one or one with n columns left.
struct NoMask {
  static constexpr bool kPresent = false;
  Vec operator()(int64_t, Vec s) const { return s; }
  Vec operator()(int64_t, int64_t, Vec s) const { return s; }
};

struct BoolMask {
  static constexpr bool kPresent = true;
  const uint8_t* row;
  Vec operator()(int64_t column, Vec s) const { return (*this)(column, kVecWidth, s); }
  Vec operator()(int64_t column, int64_t n, Vec s) const {
    return select_bytes(s, row + column, n < kVecWidth ? n : kVecWidth, splat(-kInfinity));
  }
};

template <typename Element>
struct AdditiveMask {
  static constexpr bool kPresent = true;
  const Element* row;
  Vec operator()(int64_t column, Vec s) const { return add(s, load_as_float(row + column)); }
  Vec operator()(int64_t column, int64_t n, Vec s) const {
    const Element* at = row + column;
    return add(s, n >= kVecWidth ? load_as_float(at) : load_as_float_n(at, n));
  }
};

// One value for all columns.
struct ScalarMask {
  static constexpr bool kPresent = true;
  bool hides;
  float bias;
  Vec operator()(int64_t column, Vec s) const { return (*this)(column, kVecWidth, s); }
  Vec operator()(int64_t, int64_t, Vec s) const {
    return hides ? splat(-kInfinity) : add(s, splat(bias));
  }
};

template <typename Function>
inline void with_mask(const AttentionMask* mask, const char* row, Function function) {
  if (row == nullptr) return function(NoMask{});
  const bool boolean = mask->dtype == DataType::kBool;
  if (mask->column_stride == 0) {
    return function(boolean ? ScalarMask{*row == 0, 0.0f}
                            : ScalarMask{false, load_scalar(row, mask->dtype, 0)});
  }
  if (boolean) return function(BoolMask{reinterpret_cast<const uint8_t*>(row)});
  with_element_type(mask->dtype, [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    function(AdditiveMask<Element>{reinterpret_cast<const Element*>(row)});
  });
}

inline Vec soft_cap(Vec s, float cap) { return mul(splat(cap), tanh(div(s, splat(cap)))); }

inline void soft_cap_columns(float cap, const TileColumns& tile, float* s) {
  for (int64_t c = tile.begin / kVecWidth * kVecWidth; c < tile.end; c += kVecWidth) {
    store(s + c, soft_cap(load(s + c), cap));
  }
}

template <typename Mask>
inline float finish_scores_with(const Row& row, const TileColumns& tile, const Mask& mask,
                                float* s) {
  Vec seen = splat(-kInfinity);
  int64_t c = tile.begin / kVecWidth * kVecWidth;
  const auto finish_edge = [&] {
    const int64_t column = tile.origin + c, n = row.end - column;
    Vec x = load(s + c);
    if (n > 0) x = mask(column, n, x);
    x = select_lanes(x, row.begin - column, n, splat(-kInfinity));
    seen = max(x, seen);
    store(s + c, x);
  };
  // Whole vectors of visible columns lie in [inner_begin, inner_end).
  const int64_t inner_begin = row.begin - tile.origin;
  const int64_t inner_end = (row.end - tile.origin) - kVecWidth;
  for (; c < tile.end && c < inner_begin; c += kVecWidth) finish_edge();
  for (; c < tile.end && c <= inner_end; c += kVecWidth) {
    const Vec x = mask(tile.origin + c, load(s + c));
    seen = max(x, seen);
    if constexpr (Mask::kPresent) store(s + c, x);
  }
  for (; c < tile.end; c += kVecWidth) finish_edge();
  return maximum(seen);
}

// Rows of a mask lie too far apart for the hardware to foresee the next one.
inline __attribute__((always_inline)) void prefetch_mask(const AttentionMask& mask, const Row& row,
                                                         const TileColumns& tile) {
  if (mask.column_stride == 0) return;
  const int64_t size = element_size(mask.dtype);
  const char* first = row.mask + (tile.origin + tile.begin) * size;
  prefetch_row(first, (tile.end - tile.begin) * size);
}

// Asks for what a row needs of its mask in the tile that begins at `origin`. That is a whole row
// tile of work away, so it goes to the second-level cache.
inline __attribute__((always_inline)) void prefetch_next_mask(const AttentionMask& mask,
                                                              const Row& row, int64_t origin) {
  if (mask.column_stride == 0) return;
  const int64_t size = element_size(mask.dtype);
  const int64_t end = row.end < origin + kTileKeys ? row.end : origin + kTileKeys;
  for (int64_t at = origin * size; at < end * size; at += 64) {
    __builtin_prefetch(row.mask + at, 0, 2);
  }
}

// Softcap, mask and visibility, in that order. Columns that the row may not see become -inf,
// whatever they held. Returns the largest score; NaN may be dropped, the weights bring it back.
inline float finish_scores(const ScoreRules& rules, const Row& row, const TileColumns& tile,
                           float* s) {
  if (rules.softcap != 0.0f) soft_cap_columns(rules.softcap, tile, s);
  float seen = -kInfinity;
  with_mask(rules.mask, row.mask,
            [&](const auto& mask) { seen = finish_scores_with(row, tile, mask, s); });
  return seen;
}

// e^(s - m) by way of 2^x: the product rounds in proportion to the distance from the maximum, an
// error of at most w * |log w| * 2^-24 in a weight w, less than what the scores carry already.
inline Vec weight(bool base2, Vec s, float m) {
  const Vec x = sub(s, splat(m));
  return exp2(base2 ? x : mul(x, splat(kLog2E)));
}

inline void store_weight(float* p, Vec x) { store(p, x); }

// The weights of the columns [begin, end), whole vectors of scores or pairs of them, which they may
// replace. Returns their sum, lane by lane.
template <typename Weight, typename Exponential>
inline Vec store_weights(int64_t begin, int64_t end, const float* s, Weight* w,
                         Exponential exponential) {
  Vec total = splat(0.0f);
  if constexpr (kWeightPairs<Weight>) {
    for (int64_t c = begin; c < end; c += 2 * kVecWidth) {
      const Vec first = exponential(load(s + c)), second = exponential(load(s + c + kVecWidth));
      total = add(total, add(first, second));
      store_weight_pair(w, c, first, second);
    }
  } else {
    for (int64_t c = begin; c < end; c += kVecWidth) {
      const Vec p = exponential(load(s + c));
      total = add(total, p);
      store_weight(w + c, p);
    }
  }
  return total;
}

template <typename Weight>
inline Vec exponentiate(bool base2, const TileColumns& tile, float m, const float* s, Weight* w) {
  const int64_t begin = tile.begin / kVecWidth * kVecWidth;
  return store_weights(begin, tile.end, s, w, [&](Vec x) { return weight(base2, x, m); });
}

// The same for all columns of a tile that a bounded row (row_tile.h says when) sees whole.
template <typename Weight>
inline Vec exponentiate_bounded(int reference, const float* s, Weight* w) {
  return store_weights(0, kTileKeys, s, w, [&](Vec x) { return exp2_minus(x, reference); });
}

// The step of a bounded row. Its sum is added up across the lanes only when the row is finished.
template <typename Weight>
inline void bounded_softmax(bool whole, const TileColumns& tile, int reference, const float* s,
                            Row& row, Weight* w) {
  const float m = static_cast<float>(reference);
  const Vec total =
      whole ? exponentiate_bounded(reference, s, w) : exponentiate(true, tile, m, s, w);
  store(row.sums, add(load(row.sums), total));
}

// The largest score where nothing was left to finish; NaN may be dropped here too.
inline float largest(const TileColumns& tile, const float* s) {
  Vec result = splat(-kInfinity);
  for (int64_t c = tile.begin / kVecWidth * kVecWidth; c < tile.end; c += kVecWidth) {
    result = max(load(s + c), result);
  }
  return maximum(result);
}

inline float exp_scalar(bool base2, float x) {
  float lanes[kVecWidth];
  store(lanes, weight(base2, splat(x), 0.0f));
  return lanes[0];
}

// One step of the online softmax, given the largest score of the tile. Returns the factor for what
// the row accumulated so far.
template <typename Weight>
inline float online_softmax(bool base2, const TileColumns& tile, float seen, const float* s,
                            Row& row, Weight* w) {
  const float m = seen > row.m ? seen : row.m;
  // While a row has seen no key, m is -inf; any finite value serves instead.
  const float reference = m == -kInfinity ? 0.0f : m;
  float factor = 1.0f;
  if (row.m != m) factor = row.m == -kInfinity ? 0.0f : exp_scalar(base2, row.m - reference);
  const Vec total = exponentiate(base2, tile, reference, s, w);
  store(row.sums, fma(load(row.sums), splat(factor), total));
  row.m = m;
  return factor;
}

// So that a careful product can tell "hidden" from "visible with a weight that underflowed". Call
// before the softmax.
inline void remember_hidden(const TileColumns& tile, const float* s, uint8_t* hidden) {
  for (int64_t c = tile.begin; c < tile.end; ++c) hidden[c] = s[c] == -kInfinity;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
