// The products of a block with a tile of keys and values: packed, or read in place.
#pragma once

#include <cstdint>
#include <type_traits>

#include "qkexport/cpu/row_tile.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

struct PackedProducts {
  using Weight = Packed;
  static constexpr int64_t kColumnStep = kKeyStep;
  static constexpr int64_t kAsidesPerStep = cpu::kAsidesPerStep;

  static Weight* weights(const Scratch& scratch) { return scratch.weights; }
  static Weight* row_of_weights(const Scratch& scratch, int64_t row) {
    return weight_row(scratch.weights, row);
  }

  static Packed* queries(const RowTile& t, const RowBlock& block) {
    return reinterpret_cast<Packed*>(t.scratch.query) + block.first * t.plan->head_dim;
  }

  // Where the float rows of a block are made, and how they become the block.
  static float* query_rows(const RowTile& t, const RowBlock&) { return t.scratch.rows; }
  static void finish_queries(const RowTile& t, const RowBlock& block) {
    pack_query_block(t.scratch.rows, t.plan->head_dim, block.rows, queries(t, block));
  }

  // What this block asks for of the tile [kTileKeys][width] that is read next.
  static const Packed* later_part(const void* later, const RowBlock& block, int64_t width) {
    return static_cast<const Packed*>(later) + block.first * kTileKeys * width / kTileRows;
  }

  // aside() is called between the products, where the format says so.
  template <typename Aside>
  static void score_beside(const RowTile& t, const KeyTile& tile, const BlockScores& scores,
                           Aside aside) {
    const RowBlock& block = *scores.block;
    score_packed(queries(t, block), block.rows, static_cast<const Packed*>(tile.keys),
                 t.plan->head_dim, t.plan->params->head_dim, scores.columns.begin,
                 scores.columns.end, later_part(tile.later_keys, block, t.plan->head_dim),
                 scores.scores, aside);
  }
  static void score(const RowTile& t, const KeyTile& tile, const BlockScores& scores) {
    score_beside(t, tile, scores, NothingAside{});
  }

  static void accumulate(const RowTile& t, const KeyTile& tile, const RowBlock& block,
                         const TileColumns& columns, const float* factors, Carry carry) {
    const int64_t o_row = t.plan->head_dim_v;
    value_packed(weights(t.scratch), block.rows, static_cast<const Packed*>(tile.values),
                 columns.begin, columns.end, t.plan->params->head_dim_v, factors, carry,
                 later_part(tile.later_values, block, o_row), o_row,
                 t.scratch.output + block.first * o_row);
  }

  static float value_at(const KeyTile& tile, int64_t key, int64_t channel) {
    return packed_value(static_cast<const Packed*>(tile.values), key, channel);
  }
};

struct StreamedProducts {
  using Weight = float;
  static constexpr int64_t kColumnStep = 1;
  static constexpr int64_t kAsidesPerStep = 0;

  static Weight* weights(const Scratch& scratch) { return scratch.scores; }
  static Weight* row_of_weights(const Scratch& scratch, int64_t row) {
    return scratch.scores + row * kTileKeys;
  }

  // The only block of its tile: behind it there is room for a copy that is ordered by parity.
  static float* query_rows(const RowTile& t, const RowBlock&) { return t.scratch.query; }
  static float* ordered_query_rows(const RowTile& t) {
    return t.scratch.query + kRowBlock * t.plan->head_dim;
  }
  static void finish_queries(const RowTile& t, const RowBlock& block) {
    if (t.plan->params->dtype != DataType::kBFloat16) return;
    const int64_t depth = t.plan->params->head_dim, stride = t.plan->head_dim;
    for (int64_t i = 0; i < block.rows; ++i) {
      order_by_parity(t.scratch.query + i * stride, depth, ordered_query_rows(t) + i * stride);
    }
  }

  static void score(const RowTile& t, const KeyTile& tile, const BlockScores& scores) {
    const TileColumns& columns = scores.columns;
    with_row_count(scores.block->rows, [&](auto rows) {
      with_element_type(tile.key_type, [&](auto* tag) {
        using Element = std::remove_pointer_t<decltype(tag)>;
        const auto* keys = static_cast<const Element*>(tile.keys);
        const float* queries = kByParity<Element> ? ordered_query_rows(t) : t.scratch.query;
        score_stream<rows.value>(
            queries, t.plan->head_dim, keys + (columns.begin - tile.first) * tile.key_stride,
            tile.key_stride, t.plan->params->head_dim, columns.begin, columns.end, scores.scores);
      });
    });
  }

  static void accumulate(const RowTile& t, const KeyTile& tile, const RowBlock& block,
                         const TileColumns& columns, const float* factors, Carry carry) {
    with_row_count(block.rows, [&](auto rows) {
      with_element_type(tile.value_type, [&](auto* tag) {
        const auto* values = static_cast<decltype(tag)>(const_cast<void*>(tile.values));
        value_stream<rows.value>(weights(t.scratch) + columns.begin,
                                 values + (columns.begin - tile.first) * tile.value_stride,
                                 tile.value_stride, columns.end - columns.begin,
                                 t.plan->params->head_dim_v, factors, carry, t.plan->head_dim_v,
                                 t.scratch.output);
      });
    });
  }

  static float value_at(const KeyTile& tile, int64_t key, int64_t channel) {
    const int64_t row = key - tile.first;
    return load_scalar(tile.values, tile.value_type, row * tile.value_stride + channel);
  }
};

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
