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
  block.packs = true;
  float* dst = Products::query_rows(t, block);
  for (int64_t i = 0; i < rows; ++i) {
    Row& state = t.scratch.row_state[first + i];
    clear(dst + i * depth + t.plan->params->head_dim, depth - t.plan->params->head_dim);
    load_query_row(t, transform, first + i, dst + i * depth, state);
    block.packs = block.packs && query_packs(dst + i * depth, depth);
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
  for (int64_t i = 0; i < block.rows; ++i) {
    float* o = t.scratch.output + (block.first + i) * t.plan->head_dim_v;
    const auto* weights = Products::row_of_weights(t.scratch, i);
    for (int64_t c = 0; c < width; ++c) {
      float x = carry == Carry::kReplace ? 0.0f : o[c];
      if (carry == Carry::kRescale) x *= factors[i];
      for (int64_t key = columns.begin; key < columns.end; ++key) {
        if (t.scratch.hidden[i * kTileKeys + key]) continue;
        x += weight_at(weights, key) * Products::value_at(tile, key, c);
      }
      o[c] = x;
    }
  }
}

// Mask, softcap and visibility of row i of the block. Returns its largest score, where one is
// needed.
inline float finish_row(const RowTile& t, const BlockScores& scores, int64_t i) {
  const RowBlock& block = *scores.block;
  const TileColumns& columns = scores.columns;
  const Row& row = t.scratch.row_state[block.first + i];
  if (t.rules.mask != nullptr) prefetch_next_mask(*t.rules.mask, row, columns.origin + kTileKeys);
  float* s = scores.row(i);
  if (!scores.full || t.rules.softcap != 0.0f) return finish_scores(t.rules, row, columns, s);
  return block.bounded ? 0.0f : largest(columns, s);
}

// Finished scores of row i, the largest of which is `seen`, become weights. Returns the factor of
// the running output.
template <typename Products>
inline float weigh_row(const RowTile& t, const BlockScores& scores, float seen, int64_t i) {
  const RowBlock& block = *scores.block;
  Row& row = t.scratch.row_state[block.first + i];
  const float* s = scores.row(i);
  auto* w = Products::row_of_weights(t.scratch, i);
  if (block.bounded) {
    const bool whole = scores.full && t.rules.softcap == 0.0f;
    bounded_softmax(whole, scores.columns, block.reference, s, row, w);
    return 1.0f;
  }
  return online_softmax(t.rules.base2, scores.columns, seen, s, row, w);
}

inline Carry carry_of(const RowBlock& block, bool rescale) {
  if (!block.started) return Carry::kReplace;
  return rescale ? Carry::kRescale : Carry::kKeep;
}

// Scores of the block become weights. Fills the factors of the running output.
template <typename Products>
inline Carry weigh(const RowTile& t, const BlockScores& scores, bool careful, float* factors) {
  bool rescale = false;
  for (int64_t i = 0; i < scores.block->rows; ++i) {
    const float seen = finish_row(t, scores, i);
    if (careful) remember_hidden(scores.columns, scores.row(i), t.scratch.hidden + i * kTileKeys);
    factors[i] = weigh_row<Products>(t, scores, seen, i);
    rescale = rescale || factors[i] != 1.0f;
  }
  return carry_of(*scores.block, rescale);
}

inline TileColumns visible_columns(const RowBlock& block, int64_t origin) {
  return {origin, clamp(block.any.begin - origin, 0, kTileKeys),
          clamp(block.any.end - origin, 0, kTileKeys)};
}

// The scores to be computed, and what the block needs of its mask on the way.
template <typename Products>
inline BlockScores scores_of(const RowTile& t, const KeyTile& tile, Sight sight, RowBlock& block,
                             float* scores) {
  TileColumns columns = visible_columns(block, tile.origin);
  columns.begin = columns.begin / Products::kColumnStep * Products::kColumnStep;
  columns.end = round_up(columns.end, Products::kColumnStep);
  if (t.rules.mask != nullptr && !block.started) {
    const Row* rows = t.scratch.row_state + block.first;
    for (int64_t i = 0; i < block.rows; ++i) prefetch_mask(*t.rules.mask, rows[i], columns);
  }
  return {&block, columns, sight == Sight::kAll, scores};
}

template <typename Products>
inline void attend_block(const RowTile& t, const KeyTile& tile, Sight sight, RowBlock& block) {
  const BlockScores scores = scores_of<Products>(t, tile, sight, block, t.scratch.scores);
  const bool careful = !scores.full && !tile.finite;
  float factors[kBlockRows];
  Products::score(t, tile, scores);
  const Carry carry = weigh<Products>(t, scores, careful, factors);
  if (careful) {
    accumulate_seen<Products>(t, tile, block, scores.columns, factors, carry);
  } else {
    Products::accumulate(t, tile, block, scores.columns, factors, carry);
  }
  block.started = true;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
