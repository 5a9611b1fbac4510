// Packed bfloat16 for the tile registers of Intel AMX, which multiply 16 rows by 16 columns over a
// depth of 32 and add up in float32. Inputs and results that are subnormal count as 0.
//
// A query block is [32][head_dim], weights are [32][kTileKeys]. A tile of keys is panels of 16
// keys, a tile of values is panels of 16 channels; both are whole registers, one after another
// along the depth: [16 pairs of depth][16 columns][2]. The depth of a score is head_dim, that of an
// output is the keys.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "qkexport/cpu/micro_kernel.h"
#include "qkexport/cpu/packs_all.h"
#include "qkexport/cpu/tile_registers.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

using Packed = BFloat16;
// 2 x 2 accumulators, 2 registers of rows and 2 of columns: all 8 tile registers.
constexpr int kBlockRows = 32;
constexpr int kDepthStep = 32;
constexpr int kKeyStep = kDepthStep;  // the depth of the value product
constexpr int kValueRows = 2;
constexpr float kPackedRoundoff = 0x1p-9f;
constexpr bool kWeightsInPlace = false;
constexpr int kAsidesPerStep = 1;

inline bool serves(const AttentionParams& p) { return p.dtype == DataType::kBFloat16; }

inline __m256i round_to_bfloat16(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }
inline void store_weight(BFloat16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_to_bfloat16(x));
}
// lo and hi in the halves of each 32-bit lane.
inline __m512i round_to_pairs(Vec lo, Vec hi) {
  const __m512i low = _mm512_cvtepu16_epi32(round_to_bfloat16(lo));
  const __m512i high = _mm512_cvtepu16_epi32(round_to_bfloat16(hi));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Rows [kBlockRows][depth], those past `rows` zero.
inline void pack_query_block(const float* src, int64_t depth, int64_t rows, Packed* packed) {
  for (int64_t i = 0; i < rows * depth; i += kVecWidth) store_weight(packed + i, load(src + i));
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t i = rows * depth; i < kBlockRows * depth; i += kVecWidth) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + i), zero);
  }
}

// Packs the keys [column, column + 16) of a tile.
inline void pack_key_rows(const float* rows, int64_t depth, int64_t column, Packed* keys) {
  alignas(64) float pairs[kTileSide * kTileSide];  // [key][pair of depth], as bits
  Packed* panel = keys + column * depth;
  for (int64_t d = 0; d < depth; d += kDepthStep) {
    for (int64_t key = 0; key < kTileSide; ++key) {
      const float* row = rows + key * depth + d;
      const __m512i packed =
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load(row + kVecWidth), load(row)));
      store(pairs + key * kTileSide, _mm512_castsi512_ps(packed));
    }
    transpose_block(pairs, kTileSide, reinterpret_cast<float*>(panel + d * kTileSide), kTileSide);
  }
}

// Packs two rows [2][width].
inline void pack_value_rows(const float* rows, int64_t width, int64_t key, Packed* values) {
  for (int64_t c = 0; c < width; c += kTileSide) {
    Packed* dst = values + c * kTileKeys + key * kTileSide;
    _mm512_storeu_si512(dst, round_to_pairs(load(rows + c), load(rows + width + c)));
  }
}

inline float packed_value(const Packed* values, int64_t key, int64_t channel) {
  const Packed* panel = values + channel / kTileSide * (kTileSide * kTileKeys);
  const int64_t pair = key / 2 * kTileSide + channel % kTileSide;
  return bfloat16_bits_to_float(panel[2 * pair + key % 2].bits);
}

// Adds rows . columns over the depths [begin, end).
//   rows: [16 or 32][depth]   columns: two panels of [depth][16]
template <bool kBothRows, typename Aside>
inline __attribute__((always_inline)) void add_products(const Packed* rows, const Packed* columns,
                                                        int64_t depth, int64_t begin, int64_t end,
                                                        Aside aside) {
  const int64_t stride = depth * static_cast<int64_t>(sizeof(Packed));
  for (int64_t d = begin; d < end; d += kDepthStep) {
    _tile_loadd(4, rows + d, stride);
    _tile_loadd(6, columns + d * kTileSide, kTileStride);
    _tile_loadd(7, columns + (depth + d) * kTileSide, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kBothRows) {
      _tile_loadd(5, rows + kTileSide * depth + d, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    aside();
  }
}

// 32 columns of scores. q: [kBlockRows][depth]   k: two panels of keys
template <bool kBothRows, typename Aside>
inline __attribute__((always_inline)) void score_tiles(const Packed* q, const Packed* k,
                                                       int64_t depth, float* s, Aside aside) {
  zero_sums<kBothRows>();
  add_products<kBothRows>(q, k, depth, 0, depth, aside);
  store_sums<kBothRows>(s, kTileKeys);
}

// Scores of `rows` query rows with the columns [begin, end) of a tile, [rows][kTileKeys].
template <typename Aside>
inline void score_packed(const Packed* q, int64_t rows, const Packed* keys, int64_t padded_depth,
                         int64_t /*depth*/, int64_t begin, int64_t end, const Packed* /*later*/,
                         float* s, Aside aside) {
  ProductScope::order_memory();
  for (int64_t column = begin; column < end; column += kKeyStep) {
    const Packed* panels = keys + column * padded_depth;
    if (rows > kTileSide) {
      score_tiles<true>(q, panels, padded_depth, s + column, aside);
    } else {
      score_tiles<false>(q, panels, padded_depth, s + column, NothingAside{});
    }
  }
  ProductScope::order_memory();
}

// 32 channels of the output. p: [kBlockRows][kTileKeys]   v: two panels of values
template <bool kBothRows>
inline void value_tiles(const Packed* p, const Packed* v, int64_t begin, int64_t end, bool replace,
                        int64_t o_row, float* o) {
  if (replace) {
    zero_sums<kBothRows>();
  } else {
    load_sums<kBothRows>(o, o_row);
  }
  add_products<kBothRows>(p, v, kTileKeys, begin, end, NothingAside{});
  store_sums<kBothRows>(o, o_row);
}

inline void rescale_rows(int64_t rows, int64_t width, const float* factors, int64_t o_row,
                         float* o) {
  for (int64_t i = 0; i < rows; ++i, o += o_row) {
    if (factors[i] == 1.0f) continue;
    const Vec factor = splat(factors[i]);
    for (int64_t c = 0; c < width; c += kVecWidth) store(o + c, mul(load(o + c), factor));
  }
}

// o = p . v + o * factor over the keys [begin, end) of a tile, o [kBlockRows][o_row].
inline void value_packed(const Packed* p, int64_t rows, const Packed* values, int64_t begin,
                         int64_t end, int64_t width, const float* factors, Carry carry,
                         const Packed* /*later*/, int64_t o_row, float* o) {
  if (carry == Carry::kRescale) rescale_rows(rows, width, factors, o_row, o);
  const bool replace = carry == Carry::kReplace;
  ProductScope::order_memory();
  for (int64_t column = 0; column < width; column += kPanel) {
    const Packed* panels = values + column * kTileKeys;
    if (rows > kTileSide) {
      value_tiles<true>(p, panels, begin, end, replace, o_row, o + column);
    } else {
      value_tiles<false>(p, panels, begin, end, replace, o_row, o + column);
    }
  }
  ProductScope::order_memory();
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
