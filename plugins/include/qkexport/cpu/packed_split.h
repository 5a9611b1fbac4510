// Packed float32 for the tile registers of Intel AMX, which multiply bfloat16 and add up in float32
// (packed_amx.h): every number is the sum of three bfloat16 parts, high, middle and low, which hold
// its 24 bits. Of the nine products of parts six are computed. The others are below 2^-24 of the
// whole in a score, whose factors are both rounded to parts, and below 2^-22.4 in an output, whose
// weights are truncated.
//
// Parts and products below 2^-126 count as 0, so numbers must lie in a range:
//   - norms of queries and keys are at most kLargestSplit. A score is wrong by at most
//     head_dim * 2^-126 * (8 + 2 * kLargestSplit) < 2^-55, and as it is an exponent that is the
//     relative error of a weight.
//   - values are 0 or have a magnitude in [kSmallestSplit, kLargestSplit]. The weights of a bounded
//     row (row_tile.h) are at least 2^-42, so its products are at least 2^-102, and what counts as
//     0 is below 2^-24 of them. The weights of other rows add up to 1 or more, and each key adds at
//     most (8 + 2 * value) * 2^-126 to the error: 2^-63 of kSmallestSplit, less of a larger value.
// Row tiles that meet other numbers are left to the kernels of plain vectors.
//
// Depths come in steps of 32, whose numbers i and 16 + i are a pair. A block of rows is, for each
// step, [part][half of the rows][16 rows][16 pairs][2]; a panel of 32 columns (keys of a tile of
// keys, channels of a tile of values) is, for each step, [part][half of the columns][16 pairs][16
// columns][2].
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "qkexport/cpu/micro_kernel.h"
#include "qkexport/cpu/plan.h"
#include "qkexport/cpu/split_parts.h"
#include "qkexport/cpu/tile_registers.h"

namespace qkexport::cpu {

extern const KernelTable kAvx512Kernels;

inline namespace QKEXPORT_CPU_ISA {

using Packed = Split;
constexpr int kBlockRows = 32;
constexpr int kDepthStep = 32;
constexpr int kKeyStep = kDepthStep;
constexpr int kValueRows = kDepthStep;
constexpr float kPackedRoundoff = 0.0f;
constexpr bool kWeightsInPlace = false;
constexpr int kAsidesPerStep = 6;
inline const KernelTable* fallback() { return &kAvx512Kernels; }

constexpr float kLargestSplit = 0x1p57f;
constexpr float kSmallestSplit = 0x1p-60f;

constexpr int kPartSize = 2 * kTileSize;  // both halves
constexpr int kStepSize = 3 * kPartSize;

template <>
inline constexpr bool kWeightPairs<Split> = true;

// Query rows of a kv head from which splitting its keys and values pays.
constexpr int64_t kLeastRows = 128;
static_assert(kLeastRows > kLocalRows, "packed tiles know whether all their numbers are in range");

inline bool serves(const AttentionParams& p) {
  return p.num_heads / p.num_kv_heads * p.seqlen_q >= kLeastRows;
}

// Gathers the magnitudes of values.
class ValueRange {
 public:
  void see(Vec x) {
    const __m512i bits = _mm512_castps_si512(absolute(x));
    largest_ = _mm512_max_epu32(largest_, bits);
    // 0 becomes the largest of all.
    smallest_ = _mm512_min_epu32(smallest_, _mm512_sub_epi32(bits, _mm512_set1_epi32(1)));
  }
  bool packs() const {
    const __m512i highest = _mm512_castps_si512(splat(kLargestSplit));
    const __m512i lowest =
        _mm512_sub_epi32(_mm512_castps_si512(splat(kSmallestSplit)), _mm512_set1_epi32(1));
    return (_mm512_cmpgt_epu32_mask(largest_, highest) |
            _mm512_cmplt_epu32_mask(smallest_, lowest)) == 0;
  }

 private:
  __m512i largest_ = _mm512_setzero_si512();
  __m512i smallest_ = _mm512_set1_epi32(-1);
};
// Of a query or a key; false for NaN.
inline bool norm_packs(float norm) { return norm <= kLargestSplit; }

// Weights of the columns c ... c + 31 of a row; `row` as weight_row gives it.
inline __attribute__((always_inline)) void store_weight_pair(Split* row, int64_t c, Vec first,
                                                             Vec second) {
  __m512i parts[3];
  split_pairs<false>(first, second, parts);
  uint16_t* dst = parts_of(row) + c / kDepthStep * kStepSize;
  for (int i = 0; i < 3; ++i) _mm512_storeu_si512(dst + i * kPartSize, parts[i]);
}
inline Split* weight_row(Split* weights, int64_t row) {
  return reinterpret_cast<Split*>(parts_of(weights) + row * (kTileSize / kTileSide));
}
inline float sum_of_parts(const uint16_t* p) {
  return bfloat16_bits_to_float(p[0]) +
         (bfloat16_bits_to_float(p[kPartSize]) + bfloat16_bits_to_float(p[2 * kPartSize]));
}
inline float weight_at(const Split* row, int64_t key) {
  const int64_t pair = key % kTileSide, second = key % kDepthStep / kTileSide;
  return sum_of_parts(parts_of(row) + key / kDepthStep * kStepSize + 2 * pair + second);
}

// Rows [rows][depth]; those past `rows` are not read.
inline void pack_query_block(const float* src, int64_t depth, int64_t rows, Packed* packed) {
  for (int64_t d = 0; d < depth; d += kDepthStep) {
    uint16_t* step = parts_of(packed) + d / kDepthStep * kStepSize;
    for (int64_t i = 0; i < kBlockRows; ++i) {
      __m512i parts[3] = {};
      const float* row = src + i * depth + d;
      if (i < rows) split_pairs<true>(load(row), load(row + kTileSide), parts);
      for (int part = 0; part < 3; ++part) {
        _mm512_storeu_si512(step + part * kPartSize + i * 2 * kTileSide, parts[part]);
      }
    }
  }
}

// Packs the keys [column, column + 16) of a tile.
inline void pack_key_rows(const float* rows, int64_t depth, int64_t column, Packed* keys) {
  alignas(64) float pairs[3][kTileSide * kTileSide];  // [part][key][pair of depth], as bits
  uint16_t* panel =
      parts_of(keys + column / kPanel * kPanel * depth) + column % kPanel / kTileSide * kTileSize;
  for (int64_t d = 0; d < depth; d += kDepthStep, panel += kStepSize) {
    for (int64_t key = 0; key < kTileSide; ++key) {
      const float* row = rows + key * depth + d;
      __m512i parts[3];
      split_pairs<true>(load(row), load(row + kTileSide), parts);
      for (int part = 0; part < 3; ++part) {
        store(pairs[part] + key * kTileSide, _mm512_castsi512_ps(parts[part]));
      }
    }
    for (int part = 0; part < 3; ++part) {
      transpose_block(pairs[part], kTileSide, reinterpret_cast<float*>(panel + part * kPartSize),
                      kTileSide);
    }
  }
}

// Packs 32 rows [32][width].
inline void pack_value_rows(const float* rows, int64_t width, int64_t key, Packed* values) {
  for (int64_t c = 0; c < width; c += kTileSide) {
    uint16_t* dst = parts_of(values + c / kPanel * kPanel * kTileKeys) +
                    key / kDepthStep * kStepSize + c % kPanel / kTileSide * kTileSize;
    for (int64_t i = 0; i < kTileSide; ++i, dst += 2 * kTileSide) {
      const float* row = rows + i * width + c;
      __m512i parts[3];
      split_pairs<true>(load(row), load(row + kTileSide * width), parts);
      for (int part = 0; part < 3; ++part) {
        _mm512_storeu_si512(dst + part * kPartSize, parts[part]);
      }
    }
  }
}

inline float packed_value(const Packed* values, int64_t key, int64_t channel) {
  const uint16_t* step =
      parts_of(values + channel / kPanel * kPanel * kTileKeys) + key / kDepthStep * kStepSize;
  const int64_t row = key % kTileSide, second = key % kDepthStep / kTileSide;
  return sum_of_parts(step + channel % kPanel / kTileSide * kTileSize + row * 2 * kTileSide +
                      channel % kTileSide * 2 + second);
}

// Six products of parts, the small ones first; a pair of registers is loaded as rarely as eight
// registers allow.
enum Part { kHigh = 0, kMiddle = kPartSize, kLow = 2 * kPartSize };

template <bool kBothRows>
inline __attribute__((always_inline)) void load_rows(const uint16_t* rows) {
  _tile_loadd(4, rows, kTileStride);
  if constexpr (kBothRows) _tile_loadd(5, rows + kTileSize, kTileStride);
}
inline __attribute__((always_inline)) void load_panels(const uint16_t* columns) {
  _tile_loadd(6, columns, kTileStride);
  _tile_loadd(7, columns + kTileSize, kTileStride);
}
template <bool kBothRows>
inline __attribute__((always_inline)) void multiply() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kBothRows) {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// What the blocks of a row tile ask for of the tile that comes next, for each step.
constexpr int64_t kLaterBytes =
    kStepSize * static_cast<int64_t>(sizeof(uint16_t)) * kBlockRows / kTileRows;
constexpr int64_t kLaterLines = kLaterBytes / (64 * kAsidesPerStep);  // between two products
static_assert(kLaterLines * 64 * kAsidesPerStep == kLaterBytes);
// The next step of a panel of values: asked for by one aside each part.
constexpr int64_t kAheadLines =
    kStepSize * static_cast<int64_t>(sizeof(uint16_t)) / (64 * kAsidesPerStep);

// aside() is called between the products: vector instructions there run while the tile registers
// multiply.
template <bool kBothRows, typename Aside>
inline __attribute__((always_inline)) void add_split_products(const uint16_t* rows,
                                                              const uint16_t* columns,
                                                              int64_t steps, const char*& later,
                                                              Aside aside) {
  for (int64_t i = 0; i < steps; ++i, rows += kStepSize, columns += kStepSize) {
    const auto between = [&] {
      for (int64_t line = 0; line < kLaterLines; ++line, later += 64) {
        __builtin_prefetch(later, 0, kSecondLevel);
      }
      aside();
    };
    load_rows<kBothRows>(rows + kHigh);
    load_panels(columns + kLow);
    multiply<kBothRows>();
    between();
    load_panels(columns + kMiddle);
    multiply<kBothRows>();
    between();
    load_panels(columns + kHigh);
    multiply<kBothRows>();
    between();
    load_rows<kBothRows>(rows + kLow);
    multiply<kBothRows>();
    between();
    load_rows<kBothRows>(rows + kMiddle);
    multiply<kBothRows>();
    between();
    load_panels(columns + kMiddle);
    multiply<kBothRows>();
    between();
  }
}

template <bool kBothRows, typename Aside>
inline __attribute__((always_inline)) void score_split(const Packed* q, const Packed* keys,
                                                       int64_t depth, int64_t begin, int64_t end,
                                                       const char* later, float* s, Aside aside) {
  for (int64_t column = begin; column < end; column += kKeyStep) {
    zero_sums<kBothRows>();
    add_split_products<kBothRows>(parts_of(q), parts_of(keys + column * depth), depth / kDepthStep,
                                  later, aside);
    store_sums<kBothRows>(s + column, kTileKeys);
  }
}

// Scores of `rows` query rows with the columns [begin, end) of a tile, [rows][kTileKeys].
template <typename Aside>
inline void score_packed(const Packed* q, int64_t rows, const Packed* keys, int64_t padded_depth,
                         int64_t /*depth*/, int64_t begin, int64_t end, const Packed* later,
                         float* s, Aside aside) {
  const char* ahead = reinterpret_cast<const char*>(later);
  ProductScope::order_memory();
  if (rows > kTileSide) {
    score_split<true>(q, keys, padded_depth, begin, end, ahead, s, aside);
  } else {
    score_split<false>(q, keys, padded_depth, begin, end, ahead, s, NothingAside{});
  }
  ProductScope::order_memory();
}

// o = sums + o * factor for the channels of a panel.
inline void add_panel(const float* sums, int64_t rows, const float* factors, Carry carry,
                      int64_t o_row, float* o) {
  for (int64_t i = 0; i < rows; ++i, sums += kPanel, o += o_row) {
    for (int64_t c = 0; c < kPanel; c += kVecWidth) {
      store(o + c, carry_over(carry, o + c, factors[i], load(sums + c)));
    }
  }
}

template <bool kBothRows>
inline void value_split(const Packed* p, int64_t block_rows, const Packed* values, int64_t begin,
                        int64_t end, int64_t width, const float* factors, Carry carry,
                        const char* later, int64_t o_row, float* o) {
  // In turns: the sums of a panel are read while the next one is multiplied.
  alignas(64) float sums[2][kBlockRows * kPanel];
  const uint16_t* rows = parts_of(p) + begin / kDepthStep * kStepSize;
  int turn = 0;
  for (int64_t column = 0; column < width; column += kPanel, turn = 1 - turn) {
    const uint16_t* panel = parts_of(values + column * kTileKeys) + begin / kDepthStep * kStepSize;
    const char* next = reinterpret_cast<const char*>(panel + kStepSize);
    zero_sums<kBothRows>();
    add_split_products<kBothRows>(rows, panel, (end - begin) / kDepthStep, later, [&] {
      for (int64_t line = 0; line < kAheadLines; ++line, next += 64) {
        __builtin_prefetch(next, 0, kFirstLevel);
      }
    });
    store_sums<kBothRows>(sums[turn], kPanel);
    ProductScope::order_memory();
    add_panel(sums[turn], block_rows, factors, carry, o_row, o + column);
  }
}

// o = p . v + o * factor over the keys [begin, end) of a tile, o [kBlockRows][o_row].
inline void value_packed(const Packed* p, int64_t rows, const Packed* values, int64_t begin,
                         int64_t end, int64_t width, const float* factors, Carry carry,
                         const Packed* later, int64_t o_row, float* o) {
  const char* ahead = reinterpret_cast<const char*>(later);
  ProductScope::order_memory();
  if (rows > kTileSide) {
    value_split<true>(p, rows, values, begin, end, width, factors, carry, ahead, o_row, o);
  } else {
    value_split<false>(p, rows, values, begin, end, width, factors, carry, ahead, o_row, o);
  }
  ProductScope::order_memory();
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
