// What the attention phase works on: a tile of query rows, blocks of it, and tiles of keys.
#pragma once

#include <cstdint>

#include "qkexport/cpu/pack.h"
#include "qkexport/cpu/softmax_block.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// With |s| < r for every key of a row (in units of log2 e), the weights 2^(s - r) lie in [2^-2r,
// 1]. r is then as good a reference as the true maximum: nothing overflows, and with r <= 21 no
// weight is subnormal and the largest is at least 2^-42, so the quotient o / d keeps full relative
// precision unless |v| itself is below 2^-126 + 42. |s| is bounded by the Cauchy-Schwarz product
// ||q|| * max ||k||, which after QK norm is small for any input; the slack covers the rounding of
// the norms and of the dot products for head_dim up to 2^12, and of packing.
constexpr float kLargestSafeBound = 20.0f;
constexpr float kBoundSlack = 1.001f * (1.0f + kPackedRoundoff) * (1.0f + kPackedRoundoff);

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

// A block of rows of the tile, at most kBlockRows.
struct RowBlock {
  int64_t first;  // within the tile
  int64_t rows;
  KeyRange any;   // keys that some row sees
  KeyRange all;   // keys that every row sees
  bool bounded;   // no running maximum is needed
  float bound;    // the largest of its rows
  int reference;  // the integer above it, when the block is bounded
  bool packs;     // its rows are among those that the format is for
  bool started;   // some tile was accumulated
  bool finished;  // its output was written
};

// The scores of a block with the columns of a tile of keys.
struct BlockScores {
  RowBlock* block;
  TileColumns columns;
  bool full;      // every row sees all columns
  float* scores;  // [kBlockRows][kTileKeys]

  float* row(int64_t i) const { return scores + i * kTileKeys; }
};

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
  const void* later_keys;  // of the packed tile that is read next, or of this one again
  const void* later_values;
  bool finite;  // no value is infinite or NaN; or nothing is known because it does not matter
};

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
