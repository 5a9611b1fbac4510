// The two matrix products of a tile as register-blocked outer products.
//
// A block of up to kRowBlock query rows keeps its accumulators in registers while the depth loop
// runs; each step costs one load per vector of b and one broadcast per row.
#pragma once

#include <cstdint>

#include "qkexport/cpu/elements.h"
#include "qkexport/cpu/tile_sizes.h"
#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// Decode reads each key and value once, from memory: asking early hides the latency at page
// boundaries, where the hardware's own prefetch stops. Rows ahead; 8 KiB of them at head_dim 128.
// What lies past the last row is asked for in vain. Asked into the second-level cache: with the
// first as the target both types took 1.1 times as long.
template <typename Element>
constexpr int64_t kStreamAhead = 64 / static_cast<int64_t>(sizeof(Element));

// Steps of a packed panel, which lies in the second-level cache: 4 % on causal prefill at D 128.
constexpr int64_t kPanelAhead = 16;

// The tile that a row tile reads next lies in the last-level cache, or in memory: it is asked for
// into the second level while this tile is worked on. The row blocks share that work, and each
// step of a panel asks for its part: a quarter of a cache line, since no more than about 16 lines
// can be under way. In elements; 0 where blocks are small. 4 to 6 % on prefill of 4096 tokens at
// D 128; with it, taller row tiles gain nothing.
constexpr int64_t kLaterStep = kPanel * kRowBlock / kTileRows;

template <typename Element>
constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Element));  // elements of a cache line
enum Cache { kSecondLevel = 2, kFirstLevel = 3 };  // as __builtin_prefetch counts

// Inlined by force, for the reason given at prefetch_row.
template <Cache kCache, typename Element>
inline __attribute__((always_inline)) void prefetch_elements(const Element* row, int64_t n) {
  for (int64_t c = 0; c < n; c += kLine<Element>) __builtin_prefetch(row + c, 0, kCache);
}

// kVecs vectors of a row, by parity where there are pairs of them.
template <int kVecs, typename Element>
inline __attribute__((always_inline)) void load_columns(const Element* b, Vec (&columns)[kVecs]) {
  for (int j = 0; j < kVecs; ++j) {
    if constexpr (kByParity<Element> && kVecs % 2 == 0) {
      const Element* pair = b + j / 2 * (2 * kVecWidth);
      columns[j] = j % 2 == 0 ? load_even(pair) : load_odd(pair);
    } else {
      columns[j] = load_as_float(b + j * kVecWidth);
    }
  }
}

// c[i][j] += a(i, k) * b[k][j] for all k < depth, with kRows x (kVecs * kVecWidth) accumulators.
// a(i, k) = a[i * a_row + k * a_step]; the strides are compile-time constants at every call. b is
// asked for kAhead steps early, and kLater floats of `later` a step. Columns are in the order of
// load_columns.
template <int kRows, int kVecs, int64_t kAhead, Cache kCache, int64_t kLater, typename Element>
inline __attribute__((always_inline)) void outer_products(const float* a, int64_t a_row,
                                                          int64_t a_step, const Element* b,
                                                          int64_t b_step, int64_t depth,
                                                          const float* later,
                                                          Vec (&c)[kRows][kVecs]) {
  for (int64_t k = 0; k < depth; ++k) {
    if constexpr (kAhead > 0) prefetch_elements<kCache>(b + kAhead * b_step, kVecs * kVecWidth);
    if constexpr (kLater > 0) __builtin_prefetch(later + k * kLater, 0, kSecondLevel);
    Vec columns[kVecs];
    load_columns(b, columns);
    for (int i = 0; i < kRows; ++i) {
      const Vec row = splat(a[i * a_row]);
      for (int j = 0; j < kVecs; ++j) c[i][j] = fma(row, columns[j], c[i][j]);
    }
    a += a_step;
    b += b_step;
  }
}

template <int kRows, int kVecs>
inline __attribute__((always_inline)) void score_panel(const float* q, const float* k,
                                                       int64_t depth, const float* later,
                                                       float* s) {
  Vec c[kRows][kVecs];
  for (auto& row : c) {
    for (Vec& x : row) x = splat(0.0f);
  }
  outer_products<kRows, kVecs, kPanelAhead, kFirstLevel, kLaterStep>(q, 1, kRows, k, kPanel, depth,
                                                                     later, c);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVecs; ++j) store(s + i * kTileKeys + j * kVecWidth, c[i][j]);
  }
}

// Scores of one row block with the columns [begin, end) of a key tile, rounded out to vectors.
//   q: [depth][kRows]   keys: panels of [depth padded][kPanel]   s: [kRows][kTileKeys]
//   later: this block's part of the keys that are read next
template <int kRows>
void score_block(const float* q, const float* keys, int64_t panel_stride, int64_t depth,
                 int64_t begin, int64_t end, const float* later, float* s) {
  int64_t column = begin / kVecWidth * kVecWidth;
  for (; column < end; later += depth * kLaterStep) {
    const float* panel = keys + column / kPanel * panel_stride + column % kPanel;
    if (column % kPanel == 0 && column + kVecWidth < end) {
      score_panel<kRows, 2>(q, panel, depth, later, s + column);
      column += kPanel;
    } else {
      score_panel<kRows, 1>(q, panel, depth, later, s + column);
      column += kVecWidth;
    }
  }
}

template <typename Weight>
inline Weight* weight_row(Weight* weights, int64_t row) {
  return weights + row * kTileKeys;
}

// For products that leave time for something else, where there is nothing to do.
struct NothingAside {
  void operator()() const {}
};

enum class Carry { kReplace, kKeep, kRescale };

// What the keys so far add up to: x + o * factor. The sums x of a tile begin at 0 and come in at
// its end: one by one, the terms of a late key would round off against the sum of all before it.
inline Vec carry_over(Carry carry, const float* o, float factor, Vec x) {
  if (carry == Carry::kReplace) return x;
  return fma(load(o), splat(carry == Carry::kRescale ? factor : 1.0f), x);
}

template <int kRows, int kVecs, int64_t kAhead = 0, Cache kCache = kFirstLevel, int64_t kLater = 0,
          typename Element>
inline __attribute__((always_inline)) void value_panel(const float* p, const Element* v,
                                                       int64_t v_row, int64_t depth,
                                                       const float* factors, Carry carry,
                                                       int64_t o_row, float* o,
                                                       const float* later = nullptr) {
  constexpr bool kPairs = kByParity<Element> && kVecs % 2 == 0;
  Vec c[kRows][kVecs];
  for (auto& row : c) {
    for (Vec& x : row) x = splat(0.0f);
  }
  outer_products<kRows, kVecs, kAhead, kCache, kLater>(p, kTileKeys, 1, v, v_row, depth, later, c);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVecs; ++j) {
      if (kPairs && j % 2 == 0) from_parity(c[i][j], c[i][j + 1]);
      float* at = o + i * o_row + j * kVecWidth;
      store(at, carry_over(carry, at, factors[i], c[i][j]));
    }
  }
}

// o = p . v + o * factor over the keys [begin, end) of a tile whose values are packed.
//   p: [kRows][kTileKeys]   values: panels of [kTileKeys][kPanel]   o: [kRows][o_row]
//   later: this block's part of the values that are read next
template <int kRows>
void value_block(const float* p, const float* values, int64_t begin, int64_t end, int64_t width,
                 const float* factors, Carry carry, const float* later, int64_t o_row, float* o) {
  const float* v = values + begin * kPanel;
  for (int64_t column = 0; column < width; column += kPanel) {
    if (width - column > kVecWidth) {
      value_panel<kRows, 2, kPanelAhead, kFirstLevel, kLaterStep>(
          p + begin, v, kPanel, end - begin, factors, carry, o_row, o + column, later);
    } else {
      value_panel<kRows, 1>(p + begin, v, kPanel, end - begin, factors, carry, o_row, o + column);
    }
    v += kTileKeys * kPanel;
    later += kTileKeys * kLaterStep;
  }
}

// As many vectors of a value row at a time as the accumulators allow: decode streams whole rows.
template <int kRows>
constexpr int stream_vecs() {
  constexpr int fit = kMaxAccumulators / kRows;
  return fit >= 8 ? 8 : (fit >= 4 ? 4 : (fit >= 2 ? 2 : 1));
}

// The columns past the last whole vector, one row at a time.
template <int kRows, typename Element>
void value_tail(const float* p, const Element* v, int64_t v_row, int64_t depth, int64_t n,
                const float* factors, Carry carry, int64_t o_row, float* o) {
  for (int i = 0; i < kRows; ++i) {
    Vec c = splat(0.0f);
    for (int64_t k = 0; k < depth; ++k) {
      c = fma(splat(p[i * kTileKeys + k]), load_as_float_n(v + k * v_row, n), c);
    }
    // Rows of the output are padded to whole vectors.
    store_n(o + i * o_row, carry_over(carry, o + i * o_row, factors[i], c), n);
  }
}

// The same as value_block for values that are read in place: rows of `width` elements, v_row apart.
template <int kRows, typename Element>
void value_stream(const float* p, const Element* v, int64_t v_row, int64_t depth, int64_t width,
                  const float* factors, Carry carry, int64_t o_row, float* o) {
  constexpr int kVecs = stream_vecs<kRows>();
  int64_t column = 0;
  for (; column + kVecs * kVecWidth <= width; column += kVecs * kVecWidth) {
    value_panel<kRows, kVecs, kStreamAhead<Element>, kSecondLevel>(
        p, v + column, v_row, depth, factors, carry, o_row, o + column);
  }
  for (; column + kVecWidth <= width; column += kVecWidth) {
    value_panel<kRows, 1>(p, v + column, v_row, depth, factors, carry, o_row, o + column);
  }
  if (column < width) {
    value_tail<kRows>(p, v + column, v_row, depth, width - column, factors, carry, o_row,
                      o + column);
  }
}

// Calls step(d, load) for each vector of a row of `depth` elements, where load(p) reads the
// elements of that vector from the row p: by parity where there are pairs of vectors.
template <typename Element, typename Step>
inline __attribute__((always_inline)) void along_row(int64_t depth, Step step) {
  int64_t d = 0;
  if constexpr (kByParity<Element>) {
    for (; d + 2 * kVecWidth <= depth; d += 2 * kVecWidth) {
      step(d, [&](const Element* row) { return load_even(row + d); });
      step(d + kVecWidth, [&](const Element* row) { return load_odd(row + d); });
    }
  }
  for (; d + kVecWidth <= depth; d += kVecWidth) {
    step(d, [&](const Element* row) { return load_as_float(row + d); });
  }
  if (d < depth) {
    step(d, [&](const Element* row) { return load_as_float_n(row + d, depth - d); });
  }
}

// The channels of a query row in the order in which along_row reads keys of bfloat16.
inline void order_by_parity(const float* row, int64_t depth, float* ordered) {
  int64_t d = 0;
  for (; d + 2 * kVecWidth <= depth; d += 2 * kVecWidth) {
    Vec a = load(row + d), b = load(row + d + kVecWidth);
    to_parity(a, b);
    store(ordered + d, a);
    store(ordered + d + kVecWidth, b);
  }
  for (; d < depth; d += kVecWidth) store(ordered + d, load(row + d));
}

// Dot products of kRows query rows with 4 key rows read in place. kAsk: later keys are asked for.
//   q: rows of q_row floats, zero past `depth`, in the order of along_row
template <int kRows, bool kAsk, typename Element>
inline void score_rows_by_4(const float* q, int64_t q_row, const Element* k, int64_t k_row,
                            int64_t depth, float* s) {
  Vec c[kRows][4];
  for (auto& row : c) {
    for (Vec& x : row) x = splat(0.0f);
  }
  along_row<Element>(depth, [&](int64_t d, auto load_key) {
    if (kAsk && d % kLine<Element> == 0) {
      for (int j = 0; j < 4; ++j) {
        __builtin_prefetch(k + (kStreamAhead<Element> + j) * k_row + d, 0, kSecondLevel);
      }
    }
    Vec keys[4];
    for (int j = 0; j < 4; ++j) keys[j] = load_key(k + j * k_row);
    for (int i = 0; i < kRows; ++i) {
      const Vec row = load(q + i * q_row + d);
      for (int j = 0; j < 4; ++j) c[i][j] = fma(row, keys[j], c[i][j]);
    }
  });
  for (int i = 0; i < kRows; ++i) sum4(c[i][0], c[i][1], c[i][2], c[i][3], s + i * kTileKeys);
}

template <int kRows, typename Element>
inline void score_rows_by_1(const float* q, int64_t q_row, const Element* k, int64_t depth,
                            float* s) {
  for (int i = 0; i < kRows; ++i) {
    Vec c = splat(0.0f);
    along_row<Element>(
        depth, [&](int64_t d, auto load_key) { c = fma(load(q + i * q_row + d), load_key(k), c); });
    s[i * kTileKeys] = sum(c);
  }
}

// Scores with keys read in place: k points at key `begin` of the tile.
template <int kRows, typename Element>
void score_stream(const float* q, int64_t q_row, const Element* k, int64_t k_row, int64_t depth,
                  int64_t begin, int64_t end, float* s) {
  // Four rows at a time: 16 accumulators and 4 keys fit in 32 registers.
  constexpr int kGroup = kRows < 4 ? kRows : 4;
  int64_t column = begin;
  for (; column + 4 <= end; column += 4, k += 4 * k_row) {
    score_rows_by_4<kGroup, true>(q, q_row, k, k_row, depth, s + column);
    int row = kGroup;
    for (; row + kGroup <= kRows; row += kGroup) {
      score_rows_by_4<kGroup, false>(q + row * q_row, q_row, k, k_row, depth,
                                     s + row * kTileKeys + column);
    }
    for (; row < kRows; ++row) {
      score_rows_by_4<1, false>(q + row * q_row, q_row, k, k_row, depth,
                                s + row * kTileKeys + column);
    }
  }
  for (; column < end; ++column, k += k_row) {
    score_rows_by_1<kRows>(q, q_row, k, depth, s + column);
  }
}

// Calls function with an integral constant 1 ... kRowBlock that equals rows.
template <int kRows>
struct RowCount {
  static constexpr int value = kRows;
};
template <int kRows = kRowBlock, typename Function>
inline void with_row_count(int64_t rows, Function function) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return with_row_count<kRows - 1>(rows, function);
  }
  function(RowCount<kRows>{});
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
