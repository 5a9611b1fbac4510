// How one call is cut into items that worker threads take one after another.
//
// A plan is made by the kernels of one instruction set (their tiles differ) and read by the driver
// and by those kernels. It depends on the sizes, the lengths and the number of workers alone, so
// results are reproducible for a fixed number of workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkexport/attention_params.h"

namespace qkexport::cpu {

enum class Mode : int32_t {
  kStream,  // one row block a kv head: keys and values are read in place (decode)
  kLocal,   // one row tile a kv head: each item packs the tiles it reads for itself (windows)
  kPacked,  // several row tiles a kv head share packed keys and values (prefill)
};

// Byte offsets into the workspace.
struct WorkspaceLayout {
  size_t query_statistics;  // [batch_size, seqlen_q] when the norm spans all heads
  size_t key_statistics;    // [batch_size, seqlen_kv]
  size_t keys;              // packed keys of one wave
  size_t values;            // packed values of one wave
  size_t tiles;             // PackedTile of each key tile of one wave
  size_t partials;          // rows of split items: o, m, d
  size_t scratch;           // one block for each worker
  size_t scratch_stride;
  size_t total;
};

constexpr int64_t kPartialState = 2;  // m and d behind the o of a row of partials

// What packing learned about a tile of keys and values.
struct PackedTile {
  float key_norm;  // largest Euclidean norm of its keys; NaN if one is NaN
  int32_t finite;  // 1: no value is infinite or NaN
  int32_t packs;   // 1: all its values are among the numbers that the format is for
};

struct Plan {
  const AttentionParams* params;
  Mode mode;
  int64_t workers;
  int64_t head_dim;    // padded to whole vectors
  int64_t head_dim_v;  // padded to whole panels
  int64_t group_size;  // query heads of one kv head
  int64_t pairs;       // batch entries x kv heads
  int64_t pair_rows;   // query rows of one pair: group_size * seqlen_q
  int64_t row_tiles;   // of one pair
  int64_t key_tiles;   // of one pair, up to the longest valid length
  int64_t wave_pairs;  // pairs whose packed keys and values are held at once
  int64_t splits;      // parts of the key sequence; more than 1 only with few rows
  int64_t split_tiles;
  int64_t statistics_items;
  int64_t append_items;
  int64_t append_chunks;  // of one pair
  int64_t append_rows;    // rows of present that are written
  bool appends_in_place;  // present is past: the old rows stay where they are
  bool stacked;           // row tiles run across the heads of a group
  bool serial;            // too little work to wake other threads
  WorkspaceLayout layout;
};

using ItemFunction = void (*)(const Plan&, char* workspace, int64_t first_pair, int64_t item,
                              char* scratch);

// The kernels of one instruction set.
struct KernelTable {
  const char* name;
  // longest: the largest number of valid keys of any batch entry.
  Plan (*make_plan)(const AttentionParams&, int64_t workers, int64_t longest);
  ItemFunction statistics;
  ItemFunction append;
  ItemFunction pack;
  ItemFunction attend;
  ItemFunction merge;
  // Evaluates a vector function of vec_math.h for tests: 0 exp2, 1 exp, 2 tanh,
  // 3 2^(x - 20).
  void (*evaluate)(int function, const float* x, int64_t n, float* y);
  // Rows [first_row, end_row) of a pair of a packed plan of other kernels, of which nothing but the
  // largest norm of a key is used, and the scratch memory that they take.
  void (*attend_rows)(const Plan&, char* workspace, int64_t pair, int64_t first_row,
                      int64_t end_row, float key_norm, char* scratch);
  size_t (*attend_rows_scratch)(const Plan&);
  // Calls that these kernels do not serve are left to the others.
  bool (*serves)(const AttentionParams&);
  const KernelTable* others;
};

}  // namespace qkexport::cpu
