// One block of query rows against one tile of keys and values.
#pragma once

#include <cstdint>

#include "qkexport/cpu/products.h"
#include "qkexport/cpu/query_rows.h"
#include "qkexport/cpu/sight.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

template <typename Products>
inline RowBlock prepare_block(const RowTile& t, int64_t first) {
  const int64_t depth = t.plan->head_dim;
  const int64_t rows = clamp(t.num_rows - first, 0, kBlockRows);
  const RowTransform transform = query_transform(*t.plan, t.workspace);
  RowBlock block = {};
  block.first = first;
  block.rows = rows;
  block.all = {t.key_begin, t.key_end};
  block.bounded = t.rules.base2;
  float* dst = Products::query_rows(t, block);
  for (int64_t i = 0; i < rows; ++i) {
    Row& state = t.scratch.row_state[first + i];
    clear(dst + i * depth + t.plan->params->head_dim, depth - t.plan->params->head_dim);
    load_query_row(t, transform, first + i, dst + i * depth, state);
    grow(block, state);
  }
  if (block.bounded) block.reference = static_cast<int>(block.bound) + 1;
  Products::finish_queries(t, block);
  return block;
}

// The value product when a value is infinite or NaN and some row may not see it: 0 * NaN must not
// reach that row. One element at a time; this is not the common case.
template <typename Products>
inline void accumulate_seen(const RowTile& t, const KeyTile& tile, const RowBlock& block,
                            const TileColumns& columns, const float* factors, Carry carry) {
  const int64_t width = t.plan->params->head_dim_v;
  const auto* weights = Products::weights(t.scratch);
  for (int64_t i = 0; i < block.rows; ++i) {
    float* o = t.scratch.output + (block.first + i) * t.plan->head_dim_v;
    for (int64_t c = 0; c < width; ++c) {
      float x = carry == Carry::kReplace ? 0.0f : o[c];
      if (carry == Carry::kRescale) x *= factors[i];
      for (int64_t key = columns.begin; key < columns.end; ++key) {
        if (t.scratch.hidden[i * kTileKeys + key]) continue;
        x += weight_value(weights[i * kTileKeys + key]) * Products::value_at(tile, key, c);
      }
      o[c] = x;
    }
  }
}

// Scores of the block become weights. Fills the factors of the running output.
template <typename Products>
inline Carry weigh(const RowTile& t, const RowBlock& block, const TileColumns& columns, bool full,
                   bool careful, float* factors) {
  bool rescale = false;
  for (int64_t i = 0; i < block.rows; ++i) {
    Row& row = t.scratch.row_state[block.first + i];
    if (t.rules.mask != nullptr) prefetch_next_mask(*t.rules.mask, row, columns.origin + kTileKeys);
    float* s = t.scratch.scores + i * kTileKeys;
    auto* w = Products::weights(t.scratch) + i * kTileKeys;
    const bool finished = full && t.rules.softcap == 0.0f;
    const float seen = finished ? (block.bounded ? 0.0f : largest(columns, s))
                                : finish_scores(t.rules, row, columns, s);
    if (careful) remember_hidden(columns, s, t.scratch.hidden + i * kTileKeys);
    if (block.bounded) {
      bounded_softmax(finished, columns, block.reference, s, row, w);
      continue;
    }
    factors[i] = online_softmax(t.rules.base2, columns, seen, s, row, w);
    rescale = rescale || factors[i] != 1.0f;
  }
  if (!block.started) return Carry::kReplace;
  return rescale ? Carry::kRescale : Carry::kKeep;
}

inline TileColumns visible_columns(const RowBlock& block, int64_t origin) {
  return {origin, clamp(block.any.begin - origin, 0, kTileKeys),
          clamp(block.any.end - origin, 0, kTileKeys)};
}

template <typename Products>
inline void attend_block(const RowTile& t, const KeyTile& tile, Sight sight, RowBlock& block) {
  TileColumns columns = visible_columns(block, tile.origin);
  columns.begin = columns.begin / Products::kColumnStep * Products::kColumnStep;
  columns.end = round_up(columns.end, Products::kColumnStep);
  const bool full = sight == Sight::kAll;
  const bool careful = !full && !tile.finite;
  if (t.rules.mask != nullptr && !block.started) {
    const Row* rows = t.scratch.row_state + block.first;
    for (int64_t i = 0; i < block.rows; ++i) prefetch_mask(*t.rules.mask, rows[i], columns);
  }
  float factors[kBlockRows];
  Products::score(t, tile, block, columns);
  const Carry carry = weigh<Products>(t, block, columns, full, careful, factors);
  if (careful) {
    accumulate_seen<Products>(t, tile, block, columns, factors, carry);
  } else {
    Products::accumulate(t, tile, block, columns, factors, carry);
  }
  block.started = true;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
