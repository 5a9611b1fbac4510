// The items of the attention phase, and the merge of the parts of a split key sequence.
#pragma once

#include <cstdint>

#include "qkexport/cpu/attend_row_tile.h"
#include "qkexport/cpu/key_tiles.h"
#include "qkexport/cpu/make_plan.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// Row tiles of a head descend: under a causal mask the heavy ones come first, and what is left
// for the last worker to finish is light.
inline void place_rows(const Plan& plan, int64_t tile, RowTile& t) {
  if (plan.stacked) {
    t.first_row = tile * kTileRows;
    t.num_rows = clamp(plan.pair_rows - t.first_row, 0, kTileRows);
    return;
  }
  const int64_t seqlen_q = plan.params->seqlen_q;
  const int64_t position = tile / plan.group_size * kTileRows;
  t.first_row = tile % plan.group_size * seqlen_q + position;
  t.num_rows = clamp(seqlen_q - position, 0, kTileRows);
}

// What packing learned about the keys and values of a pair.
struct KeyTraits {
  float norm;  // the largest
  bool packs;  // all are among the numbers that the format is for
};
inline KeyTraits key_traits(const PackedPair& packed, int64_t tiles) {
  KeyTraits traits = {0.0f, true};
  for (int64_t i = 0; i < tiles; ++i) {
    traits.norm = larger_norm(traits.norm, packed.tiles[i].key_norm);
    traits.packs = traits.packs && packed.tiles[i].packs != 0;
  }
  traits.packs = traits.packs && norm_packs(traits.norm);
  return traits;
}

inline RowTile row_tile(const Plan& plan, char* workspace, int64_t pair, char* scratch_memory) {
  BlockCutter cutter(scratch_memory);
  RowTile t = {};
  t.plan = &plan;
  t.workspace = workspace;
  t.scratch = cut_scratch(plan, cutter);
  t.rules = score_rules(*plan.params);
  t.pair = pair_of(plan, pair);
  t.key_end = valid_keys(*plan.params, t.pair.batch);
  t.key_norm = kInfinity;
  return t;
}

inline void attend_local(RowTile& t, int64_t split) {
  attend_row_tile<PackedProducts>(
      t, split, [&](const RowBlock&, Sight, int64_t origin) { return local_tile(t, origin); });
}

// What attend_rows takes from a plan of other kernels.
inline Plan local_plan(const Plan& packed_plan) {
  Plan plan = packed_plan;
  plan.mode = Mode::kLocal;
  return plan;
}

inline void attend_rows(const Plan& packed_plan, char* workspace, int64_t pair, int64_t first_row,
                        int64_t end_row, float key_norm, char* scratch_memory) {
  const Plan plan = local_plan(packed_plan);
  RowTile t = row_tile(plan, workspace, pair, scratch_memory);
  t.key_norm = key_norm;
  for (int64_t row = first_row; row < end_row; row += kTileRows) {
    t.first_row = row;
    t.num_rows = clamp(end_row - row, 0, kTileRows);
    attend_local(t, 0);
  }
}

inline size_t attend_rows_scratch(const Plan& packed_plan) {
  BlockCutter cutter(nullptr);
  cut_scratch(local_plan(packed_plan), cutter);
  return cutter.used();
}

// Item `part` of the pair with this index in the wave: one of its row tiles.
inline void attend_packed(RowTile& t, int64_t pair, int64_t index, int64_t part,
                          char* scratch_memory) {
  const Plan& plan = *t.plan;
  const PackedPair packed = packed_pair(plan, t.workspace, index);
  const KeyTraits keys = key_traits(packed, ceil_div(t.key_end, kTileKeys));
  t.key_norm = keys.norm;
  place_rows(plan, plan.row_tiles - 1 - part, t);
  const auto tile_at = [&](const RowBlock&, Sight, int64_t origin) {
    return packed_tile(plan, packed, origin, t.key_end);
  };
  if (keys.packs && attend_row_tile<PackedProducts>(t, 0, tile_at)) return;
  if (fallback() == nullptr) return;
  fallback()->attend_rows(plan, t.workspace, pair, t.first_row, t.first_row + t.num_rows,
                          t.key_norm, scratch_memory);
}

// Item: a row tile of a pair of the wave (packed), or a part of the keys of a pair.
inline void attend_item(const Plan& plan, char* workspace, int64_t first_pair, int64_t item,
                        char* scratch_memory) {
  const ProductScope products;
  const int64_t parts = plan.mode == Mode::kPacked ? plan.row_tiles : plan.splits;
  const int64_t index = item / parts, part = item % parts;
  RowTile t = row_tile(plan, workspace, first_pair + index, scratch_memory);
  if (plan.mode == Mode::kPacked) {
    return attend_packed(t, first_pair + index, index, part, scratch_memory);
  }
  const int64_t valid = t.key_end;
  t.key_begin = clamp(part * plan.split_tiles * kTileKeys, 0, valid);
  t.key_end = clamp((part + 1) * plan.split_tiles * kTileKeys, 0, valid);
  t.num_rows = plan.pair_rows;
  if (plan.mode == Mode::kLocal) return attend_local(t, part);
  attend_row_tile<StreamedProducts>(t, part,
                                    [&](const RowBlock& block, Sight sight, int64_t origin) {
                                      return stream_tile(t, block, sight, origin);
                                    });
}

// o and d of the parts added up in the units of the largest m.
inline void merge_row(const Plan& plan, char* workspace, bool base2, int64_t pair, int64_t row,
                      float* o) {
  const int64_t width = plan.params->head_dim_v;
  float largest = -kInfinity, d = 0.0f;
  for (int64_t split = 0; split < plan.splits; ++split) {
    const float m = partial_row(plan, workspace, pair, split, row)[plan.head_dim_v];
    if (m > largest) largest = m;
  }
  clear(o, width);
  for (int64_t split = 0; split < plan.splits; ++split) {
    const float* partial = partial_row(plan, workspace, pair, split, row);
    const float m = partial[plan.head_dim_v];
    if (m == -kInfinity && partial[plan.head_dim_v + 1] == 0.0f) continue;
    const float factor = m == largest ? 1.0f : exp_scalar(base2, m - largest);
    d += partial[plan.head_dim_v + 1] * factor;
    for (int64_t c = 0; c < width; ++c) o[c] += partial[c] * factor;
  }
  write_output_row(plan, pair_of(plan, pair), row, o, d);
}

// Item: all rows of one pair.
inline void merge_item(const Plan& plan, char* workspace, int64_t /*first_pair*/, int64_t pair,
                       char* scratch_memory) {
  BlockCutter cutter(scratch_memory);
  const Scratch scratch = cut_scratch(plan, cutter);
  const bool base2 = score_rules(*plan.params).base2;
  for (int64_t row = 0; row < plan.pair_rows; ++row) {
    merge_row(plan, workspace, base2, pair, row, scratch.output);
  }
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
