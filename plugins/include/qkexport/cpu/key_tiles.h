// The three ways a row tile comes by a tile of keys and values: shared and packed, packed for
// itself, or read in place.
#pragma once

#include <cstdint>

#include "qkexport/cpu/attend.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

inline KeyTile packed_tile(const Plan& plan, const PackedPair& packed, int64_t origin,
                           int64_t end) {
  const int64_t later = origin + kTileKeys < end ? origin + kTileKeys : origin;
  return {origin,
          packed.keys + origin * plan.head_dim,
          packed.values + origin * plan.head_dim_v,
          0,
          0,
          0,
          DataType::kFloat32,
          DataType::kFloat32,
          packed.keys + later * plan.head_dim,
          packed.values + later * plan.head_dim_v,
          packed.tiles[origin / kTileKeys].finite != 0};
}

inline KeyTile local_tile(const RowTile& t, int64_t origin) {
  const int64_t end = clamp(t.key_end, origin, origin + kTileKeys);
  auto* keys = reinterpret_cast<Packed*>(t.scratch.keys);
  auto* values = reinterpret_cast<Packed*>(t.scratch.values);
  pack_keys(*t.plan, t.workspace, t.pair, origin, end, t.scratch, keys);
  const bool finite = pack_values(*t.plan, t.pair, origin, end, t.scratch, values).finite;
  return {origin, keys,   values, 0, 0, 0, DataType::kFloat32, DataType::kFloat32,
          keys,   values, finite};
}

// Copies rows [begin, end) of a sequence that lie in several tensors, or are not normalized yet.
inline void gather_rows(const RowTile& t, const Sequence& sequence, int64_t begin, int64_t end,
                        int64_t width, int64_t stride, const RowTransform* transform, float* dst) {
  RowReader reader(*t.plan->params, sequence, t.pair, width);
  for (int64_t row = begin; row < end; ++row, dst += stride) {
    reader.read(row, transform, t.scratch.transform, dst);
  }
}

template <typename Element>
inline bool rows_are_finite(const Element* rows, int64_t stride, int64_t count, int64_t width) {
  Vec probe = splat(0.0f);
  for (int64_t i = 0; i < count; ++i, rows += stride) {
    int64_t c = 0;
    for (; c + kVecWidth <= width; c += kVecWidth) {
      probe = fma(load_as_float(rows + c), splat(0.0f), probe);
    }
    if (c < width) probe = fma(load_as_float_n(rows + c, width - c), splat(0.0f), probe);
  }
  return !is_nan(sum(probe));
}

inline void stream_keys(const RowTile& t, int64_t begin, int64_t end, KeyTile& tile) {
  const AttentionParams& p = *t.plan->params;
  const Sequence sequence = key_sequence(p);
  const Run run = current_run(p, sequence, t.pair.batch, t.pair.head, begin);
  const bool ready = run.new_token < 0 || !p.normalize_key;
  if (run.end >= end && ready) {
    tile.keys = run.first;
    tile.key_stride = run.row_stride;
    tile.key_type = p.dtype;
    return;
  }
  const RowTransform transform = key_transform(*t.plan, t.workspace);
  gather_rows(t, sequence, begin, end, p.head_dim, t.plan->head_dim,
              p.normalize_key ? &transform : nullptr, t.scratch.keys);
  tile.keys = t.scratch.keys;
  tile.key_stride = t.plan->head_dim;
  tile.key_type = DataType::kFloat32;
}

inline void stream_values(const RowTile& t, int64_t begin, int64_t end, KeyTile& tile) {
  const AttentionParams& p = *t.plan->params;
  const Sequence sequence = value_sequence(p);
  const Run run = current_run(p, sequence, t.pair.batch, t.pair.head, begin);
  if (run.end >= end) {
    tile.values = run.first;
    tile.value_stride = run.row_stride;
    tile.value_type = p.dtype;
    return;
  }
  gather_rows(t, sequence, begin, end, p.head_dim_v, t.plan->head_dim_v, nullptr, t.scratch.values);
  tile.values = t.scratch.values;
  tile.value_stride = t.plan->head_dim_v;
  tile.value_type = DataType::kFloat32;
}

inline KeyTile stream_tile(const RowTile& t, const RowBlock& block, Sight sight, int64_t origin) {
  const TileColumns columns = visible_columns(block, origin);
  const int64_t begin = origin + columns.begin, end = origin + columns.end;
  KeyTile tile = {};
  tile.origin = origin;
  tile.first = columns.begin;
  tile.finite = true;
  stream_keys(t, begin, end, tile);
  stream_values(t, begin, end, tile);
  if (sight == Sight::kAll) return tile;
  with_element_type(tile.value_type, [&](auto* tag) {
    const auto* rows = static_cast<decltype(tag)>(const_cast<void*>(tile.values));
    tile.finite = rows_are_finite(rows, tile.value_stride, end - begin, t.plan->params->head_dim_v);
  });
  return tile;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
