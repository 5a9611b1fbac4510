// Keys and values in the layout that the products of packed_format.h read. Keys past the end of the
// sequence are zeros, and so are values up to the next multiple of kKeyStep.
#pragma once

#include <cstdint>
#include <cstring>

#include "qkexport/cpu/key_value_source.h"
#include "qkexport/cpu/row_transforms.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// One kv head of one batch entry.
struct Pair {
  int64_t batch;
  int64_t head;
};

inline Pair pair_of(const Plan& plan, int64_t pair) {
  return {pair / plan.params->num_kv_heads, pair % plan.params->num_kv_heads};
}

// Reads rows of the total sequence one after another.
class RowReader {
 public:
  RowReader(const AttentionParams& p, const Sequence& sequence, Pair pair, int64_t width)
      : p_(p), sequence_(sequence), pair_(pair), width_(width) {}

  // transform: null where rows are used as they are.
  void read(int64_t row, const RowTransform* transform, float* transform_scratch, float* dst) {
    if (row < run_.begin || row >= run_.end) {
      run_ = current_run(p_, sequence_, pair_.batch, pair_.head, row);
    }
    const int64_t step = row - run_.begin;
    const char* address = run_.first + step * run_.row_stride * element_size(p_.dtype);
    const int64_t size = element_size(p_.dtype);
    if (row + kRowsAhead < run_.end) {
      prefetch_row(address + kRowsAhead * run_.row_stride * size, width_ * size);
    }
    load_row(address, p_.dtype, 0, width_, dst);
    if (run_.new_token >= 0 && transform != nullptr) {
      transform_row(*transform, pair_.batch, pair_.head, run_.new_token + step, dst,
                    transform_scratch);
    }
  }

 private:
  const AttentionParams& p_;
  Sequence sequence_;
  Pair pair_;
  int64_t width_;
  Run run_ = {nullptr, 0, 0, 0, -1};
};

inline void clear(float* dst, int64_t n) {
  if (n > 0) std::memset(dst, 0, static_cast<size_t>(n) * sizeof(float));
}

// Keeps NaN once seen.
inline float larger_norm(float largest, float squares) {
  return squares > largest || is_nan(squares) ? squares : largest;
}

// Packs the keys [begin, end) of a pair. Returns the largest Euclidean norm.
inline float pack_keys(const Plan& plan, char* workspace, Pair pair, int64_t begin, int64_t end,
                       const Scratch& scratch, Packed* keys) {
  const AttentionParams& p = *plan.params;
  const int64_t depth = plan.head_dim;
  const RowTransform transform = key_transform(plan, workspace);
  RowReader reader(p, key_sequence(p), pair, p.head_dim);
  clear(scratch.rows, kVecWidth * depth);
  float squares = 0.0f;
  const int64_t padded_end = begin + round_up(end - begin, kKeyStep);
  for (int64_t first = begin; first < padded_end; first += kVecWidth) {
    for (int64_t i = 0; i < kVecWidth; ++i) {
      float* row = scratch.rows + i * depth;
      if (first + i >= end) {
        clear(row, depth);
        continue;
      }
      reader.read(first + i, p.normalize_key ? &transform : nullptr, scratch.transform, row);
      squares = larger_norm(squares, row_squares(row, depth, 0.0f));
    }
    pack_key_rows(scratch.rows, depth, first - begin, keys);
  }
  return __builtin_sqrtf(squares);
}

struct ValueTraits {
  bool finite;  // all of them
  bool packs;   // all are among the numbers that the format is for
};

// Packs the values [begin, end) of a pair.
inline ValueTraits pack_values(const Plan& plan, Pair pair, int64_t begin, int64_t end,
                               const Scratch& scratch, Packed* values) {
  const AttentionParams& p = *plan.params;
  const int64_t width = plan.head_dim_v;
  RowReader reader(p, value_sequence(p), pair, p.head_dim_v);
  clear(scratch.value_rows, kValueRows * width);
  ValueRange range;
  Vec probe = splat(0.0f);  // x * 0 is NaN exactly where x is infinite or NaN
  const int64_t padded_end = begin + round_up(end - begin, kKeyStep);
  for (int64_t first = begin; first < padded_end; first += kValueRows) {
    for (int64_t i = 0; i < kValueRows; ++i) {
      float* row = scratch.value_rows + i * width;
      if (first + i >= end) {
        clear(row, width);
        continue;
      }
      reader.read(first + i, nullptr, nullptr, row);
      // A chain for each row, so that rows need not wait for one another.
      Vec row_probe = splat(0.0f);
      for (int64_t c = 0; c < width; c += kVecWidth) {
        const Vec x = load(row + c);
        row_probe = fma(x, splat(0.0f), row_probe);
        range.see(x);
      }
      probe = add(probe, row_probe);
    }
    pack_value_rows(scratch.value_rows, width, first - begin, values);
  }
  return {!is_nan(sum(probe)), range.packs()};
}

struct PackedPair {
  const Packed* keys;
  const Packed* values;
  const PackedTile* tiles;
};

// index counts the pairs of a wave.
inline PackedPair packed_pair(const Plan& plan, char* workspace, int64_t index) {
  const int64_t first = index * plan.key_tiles;
  return {
      reinterpret_cast<Packed*>(workspace + plan.layout.keys) + first * kTileKeys * plan.head_dim,
      reinterpret_cast<Packed*>(workspace + plan.layout.values) +
          first * kTileKeys * plan.head_dim_v,
      reinterpret_cast<PackedTile*>(workspace + plan.layout.tiles) + first};
}

// Item: one key tile of one pair of the wave.
inline void pack_item(const Plan& plan, char* workspace, int64_t first_pair, int64_t item,
                      char* scratch_memory) {
  const AttentionParams& p = *plan.params;
  BlockCutter cutter(scratch_memory);
  const Scratch scratch = cut_scratch(plan, cutter);
  const int64_t index = item / plan.key_tiles, tile = item % plan.key_tiles;
  const Pair pair = pair_of(plan, first_pair + index);
  const int64_t begin = tile * kTileKeys;
  const int64_t end = clamp(valid_keys(p, pair.batch), 0, begin + kTileKeys);
  if (begin >= end) return;
  const PackedPair packed = packed_pair(plan, workspace, index);
  PackedTile& about = const_cast<PackedTile*>(packed.tiles)[tile];
  about.key_norm = pack_keys(plan, workspace, pair, begin, end, scratch,
                             const_cast<Packed*>(packed.keys) + begin * plan.head_dim);
  const ValueTraits values =
      pack_values(plan, pair, begin, end, scratch,
                  const_cast<Packed*>(packed.values) + begin * plan.head_dim_v);
  about.finite = values.finite;
  about.packs = values.packs;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
