// A tile of query rows against the tiles of keys and values it sees, up to its output.
#pragma once

#include <cstdint>

#include "qkexport/cpu/attend.h"
#include "qkexport/cpu/tile_pipeline.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// The state of one row of one part: o [head_dim_v], then m and d.
inline float* partial_row(const Plan& plan, char* workspace, int64_t pair, int64_t split,
                          int64_t row) {
  const int64_t index = (pair * plan.splits + split) * plan.pair_rows + row;
  return reinterpret_cast<float*>(workspace + plan.layout.partials) +
         index * (plan.head_dim_v + kPartialState);
}

// o / d, or zeros for a row that saw no key.
inline void write_output_row(const Plan& plan, Pair pair, int64_t pair_row, float* o, float d) {
  const AttentionParams& p = *plan.params;
  const float factor = d == 0.0f ? 0.0f : 1.0f / d;
  if (d == 0.0f) clear(o, p.head_dim_v);
  for (int64_t c = 0; c < plan.head_dim_v; c += kVecWidth) {
    store(o + c, mul(load(o + c), splat(factor)));
  }
  const int64_t head = pair.head * plan.group_size + pair_row / p.seqlen_q;
  char* dst =
      const_cast<char*>(row_address(p.output, p.dtype, pair.batch, head, pair_row % p.seqlen_q));
  store_row(dst, p.dtype, 0, p.head_dim_v, o);
}

inline void finish_rows(const RowTile& t, RowBlock& block, int64_t split) {
  const Plan& plan = *t.plan;
  const int64_t width = plan.params->head_dim_v;
  for (int64_t i = 0; i < block.rows; ++i) {
    Row& row = t.scratch.row_state[block.first + i];
    if (block.bounded) row.m = static_cast<float>(block.reference);
    row.d = sum(load(row.sums));
    float* o = t.scratch.output + (block.first + i) * plan.head_dim_v;
    const int64_t pair_row = t.first_row + block.first + i;
    if (!block.started) clear(o, width);
    if (plan.splits == 1) {
      write_output_row(plan, t.pair, pair_row, o, row.d);
      continue;
    }
    const int64_t pair = t.pair.batch * plan.params->num_kv_heads + t.pair.head;
    float* partial = partial_row(plan, t.workspace, pair, split, pair_row);
    for (int64_t c = 0; c < width; ++c) partial[c] = o[c];
    partial[plan.head_dim_v] = row.m;
    partial[plan.head_dim_v + 1] = row.d;
  }
  block.finished = true;
}

// finish(block) is called for each block that sees the tile, once its output is up to date.
template <typename Products, typename Finish>
inline void attend_tile(const RowTile& t, const KeyTile& tile, const Sight* sights,
                        RowBlock* blocks, int64_t count, Finish finish) {
  if constexpr (Products::kAsidesPerStep > 0) {
    if (tile.finite) {
      return attend_tile_pipelined<Products>(t, tile, sights, blocks, count, finish);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    if (sights[i] == Sight::kNone) continue;
    attend_block<Products>(t, tile, sights[i], blocks[i]);
    finish(blocks[i]);
  }
}

// tile_at(block, sight, origin) gives the tile of keys and values that begins at `origin`. Returns
// false, with nothing written, where the format is not for these queries.
template <typename Products, typename TileAt>
inline bool attend_row_tile(RowTile& t, int64_t split, TileAt tile_at) {
  constexpr int kMaxBlocks = kTileRows / kBlockRows;
  RowBlock blocks[kMaxBlocks];
  int64_t count = 0;
  KeyRange any = {t.key_end, t.key_begin};
  for (int64_t first = 0; first < t.num_rows; first += kBlockRows, ++count) {
    blocks[count] = prepare_block<Products>(t, first);
    if (!blocks[count].packs) return false;
    const KeyRange seen = blocks[count].any;
    if (seen.begin == seen.end) continue;
    if (seen.begin < any.begin) any.begin = seen.begin;
    if (seen.end > any.end) any.end = seen.end;
  }
  const int64_t origin = any.begin / kTileKeys * kTileKeys;
  for (int64_t key = origin; key < any.end; key += kTileKeys) {
    Sight sights[kMaxBlocks];
    bool seen = false;
    for (int64_t i = 0; i < count; ++i) {
      sights[i] = sight_of(t, blocks[i], key);
      seen = seen || sights[i] != Sight::kNone;
    }
    if (!seen) continue;
    const KeyTile tile = tile_at(blocks[0], sights[0], key);
    attend_tile<Products>(t, tile, sights, blocks, count, [&](RowBlock& block) {
      // Now, not after the last block: its output is written while the next one computes.
      if (block.any.end <= key + kTileKeys) finish_rows(t, block, split);
    });
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!blocks[i].finished) finish_rows(t, blocks[i], split);
  }
  return true;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
