// Rotary position embedding of channel pairs.
#pragma once

#include "device/element_types.cuh"

namespace qkexport::cuda {

// Pairs cover all channels of a row: first the rotary_dim / 2 that RoPE turns, then neighbours that
// stay. `second` equals head_dim for the last pair of an odd head_dim.
struct ChannelPair {
  int first;
  int second;
  bool rotated;
};

QKEXPORT_DEVICE ChannelPair channel_pair(const AttentionParams& p, int index) {
  const int half = static_cast<int>(p.rotary_dim / 2);
  if (index < half && !p.rotary_interleaved) return {index, index + half, true};
  return {2 * index, 2 * index + 1, index < half};
}

// The angles of one row: cos and sin at `base` of the caches.
struct RotaryRow {
  const RotaryCache* cache;
  int64_t base;
  bool full_width;  // one entry a channel instead of one a pair
  bool outside;     // the position id is not a row of the caches: the result is NaN

  QKEXPORT_DEVICE RotaryRow(const AttentionParams& p, const RotaryCache& rotary, int64_t batch,
                            int head, int position, bool active)
      : cache(&rotary), base(0), full_width(rotary.width == p.rotary_dim), outside(false) {
    if (!active || p.rotary == Rotary::kNone) return;
    int64_t row = position;
    if (rotary.position_ids != nullptr) {
      row = rotary.position_ids[batch * rotary.position_batch_stride + position];
      outside = row < 0 || row >= rotary.num_rows;
    }
    if (!outside) {
      base = batch * rotary.batch_stride + head * rotary.head_stride + row * rotary.row_stride;
    }
  }

  QKEXPORT_DEVICE void rotate(float& x, float& y, const ChannelPair& pair, int index) const {
    const int64_t at_x = base + (full_width ? pair.first : index);
    const float cos_x = load_float(cache->cos, cache->dtype, at_x);
    const float sin_x = load_float(cache->sin, cache->dtype, at_x);
    float cos_y = cos_x;
    float sin_y = sin_x;
    if (full_width) {
      cos_y = load_float(cache->cos, cache->dtype, base + pair.second);
      sin_y = load_float(cache->sin, cache->dtype, base + pair.second);
    }
    const float turned = x * cos_x - y * sin_x;
    y = y * cos_y + x * sin_y;
    x = turned;
  }
};

}  // namespace qkexport::cuda
