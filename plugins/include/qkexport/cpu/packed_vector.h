// Packed float32 for the outer products of micro_kernel.h.
//
// A query block is [head_dim][rows]. A tile of keys is kTileKeys / kPanel panels of
// [head_dim][kPanel]: depth-major, so that one step of the score product is two vector loads. A
// tile of values is panels of [kTileKeys][kPanel].
#pragma once

#include <cstdint>

#include "qkexport/cpu/micro_kernel.h"
#include "qkexport/cpu/packs_all.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

using Packed = float;
constexpr int kBlockRows = kRowBlock;
constexpr int kDepthStep = kVecWidth;
constexpr int kKeyStep = 1;
constexpr int kValueRows = 1;
constexpr float kPackedRoundoff = 0.0f;
constexpr bool kWeightsInPlace = true;
constexpr int kAsidesPerStep = 0;

static_assert(kRowBlock <= kVecWidth, "a row block is transposed as one square of vectors");

inline bool serves(const AttentionParams&) { return true; }

struct ProductScope {
  ProductScope() {}  // not trivial, so that an unused variable is no mistake
};

// Rows [kVecWidth][depth] become [depth][rows]. Depth ascends: a store runs over the lanes past
// `rows`, which the next depth (or the next block) writes again.
inline void pack_query_block(const float* src, int64_t depth, int64_t rows, Packed* packed) {
  float turned[kVecWidth * kVecWidth];
  for (int64_t d = 0; d < depth; d += kVecWidth) {
    transpose_block(src + d, depth, turned, kVecWidth);
    for (int64_t c = 0; c < kVecWidth; ++c) {
      store(packed + (d + c) * rows, load(turned + c * kVecWidth));
    }
  }
}

// Packs the keys [column, column + kVecWidth) of a tile.
inline void pack_key_rows(const float* rows, int64_t depth, int64_t column, Packed* keys) {
  float* panel = keys + column / kPanel * (depth * kPanel) + column % kPanel;
  for (int64_t d = 0; d < depth; d += kVecWidth) {
    transpose_block(rows + d, depth, panel + d * kPanel, kPanel);
  }
}

inline void pack_value_rows(const float* row, int64_t width, int64_t key, Packed* values) {
  float* dst = values + key * kPanel;
  for (int64_t c = 0; c < width; c += kVecWidth) {
    store(dst + c / kPanel * (kTileKeys * kPanel) + c % kPanel, load(row + c));
  }
}

inline float packed_value(const Packed* values, int64_t key, int64_t channel) {
  return values[channel / kPanel * (kTileKeys * kPanel) + key * kPanel + channel % kPanel];
}

// Scores of `rows` query rows with the columns [begin, end) of a tile, [rows][kTileKeys].
inline void score_packed(const Packed* q, int64_t rows, const Packed* keys, int64_t padded_depth,
                         int64_t depth, int64_t begin, int64_t end, const Packed* later, float* s,
                         NothingAside) {
  with_row_count(rows, [&](auto count) {
    score_block<count.value>(q, keys, padded_depth * kPanel, depth, begin, end, later, s);
  });
}

// o = p . v + o * factor over the keys [begin, end) of a tile, o [rows][o_row].
inline void value_packed(const Packed* p, int64_t rows, const Packed* values, int64_t begin,
                         int64_t end, int64_t width, const float* factors, Carry carry,
                         const Packed* later, int64_t o_row, float* o) {
  with_row_count(rows, [&](auto count) {
    value_block<count.value>(p, values, begin, end, width, factors, carry, later, o_row, o);
  });
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
