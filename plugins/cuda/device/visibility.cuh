// Which keys a query may see: causal triangle, sliding window, valid lengths and attn_mask.
#pragma once

#include <cmath>

#include "device/element_types.cuh"
#include "device/kv_rows.cuh"

namespace qkexport::cuda {

// Sequence lengths are below 2^28 (can_implement), so sums of positions and an unlimited window
// stay inside int.
inline constexpr int kUnlimited = 1 << 30;

struct KeyRange {
  int begin;
  int end;
};

// The part of visibility that is an interval of keys for each query position.
struct Visibility {
  int offset;
  int left;   // keys visible before position + offset
  int right;  // and after it
  int length;

  QKEXPORT_DEVICE Visibility(const AttentionParams& p, int64_t batch)
      : length(kv_length(p, batch)) {
    const int64_t upper_left = p.kv_cache == KvCache::kStatic ? 0 : p.seqlen_past;
    const int64_t aligned = p.causal == Causal::kLowerRight ? length - p.seqlen_q : upper_left;
    offset = static_cast<int>(aligned);
    left = limit(p.window_left);
    right = p.causal == Causal::kNone ? limit(p.window_right) : 0;
  }

  QKEXPORT_DEVICE static int limit(int64_t window) {
    return static_cast<int>(window < 0 || window > kUnlimited ? kUnlimited : window);
  }

  // The keys that `position` sees; monotonic in position at both ends.
  QKEXPORT_DEVICE KeyRange operator()(int position) const {
    const int diagonal = position + offset;
    const int begin = diagonal - left;
    const int end = diagonal + right + 1;
    return {begin < 0 ? 0 : begin, end < 0 ? 0 : (end > length ? length : end)};
  }
};

// One row of attn_mask.
struct MaskRow {
  const void* data;
  DataType dtype;
  int64_t base;
  int64_t column_stride;

  QKEXPORT_DEVICE MaskRow(const AttentionMask& mask, int64_t batch, int head, int position)
      : data(mask.data), dtype(mask.dtype), base(0), column_stride(mask.column_stride) {
    if (data == nullptr) return;
    base = (batch % mask.batch_size) * mask.batch_stride + head * mask.head_stride +
           position * mask.row_stride;
  }

  // What the mask adds to a score: -infinity where the key is hidden.
  QKEXPORT_DEVICE float bias(int column) const {
    const int64_t index = base + column * column_stride;
    if (dtype == DataType::kBool) {
      return static_cast<const uint8_t*>(data)[index] != 0 ? 0.0f : -INFINITY;
    }
    return load_float(data, dtype, index);
  }
};

// Everything that decides about one query row.
struct RowVisibility {
  KeyRange range;
  MaskRow mask;

  QKEXPORT_DEVICE RowVisibility(const AttentionParams& p, const Visibility& visibility,
                                int64_t batch, int head, int position, bool valid)
      : range(visibility(position)), mask(p.mask, batch, head, position) {
    if (!valid) range.end = 0;
  }

  // Bias of a key in the same units as the scores; -infinity: hidden.
  QKEXPORT_DEVICE float bias(int column) const {
    if (column < range.begin || column >= range.end) return -INFINITY;
    return mask.data == nullptr ? 0.0f : mask.bias(column);
  }
};

}  // namespace qkexport::cuda
