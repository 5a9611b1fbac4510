// Norm and RoPE of one head's row, in float32.
#pragma once

#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/cpu/elements.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// y = (x - mean) * factor, before gain and bias.
struct NormStatistics {
  float mean;
  float factor;
};

// Sums over the channels of one row, kept apart so that the heads of a token can be added up.
struct NormSums {
  float sum;
  float sum_of_squares;
};

// What turns a raw projection into the query or key that attention uses; one of each a call.
struct RowTransform {
  const AttentionParams* params;
  const NormParameter* weight;
  const NormParameter* bias;
  const RotaryCache* rotary;
  // [batch_size, rows] of NormStatistics when the norm spans all heads, else null.
  const NormStatistics* hidden;
  int64_t rows;
  int64_t num_heads;
};

inline int64_t segment_of(const AttentionParams& p, int64_t token) {
  if (p.segment_ends == nullptr) return 0;
  int64_t segment = 0;
  while (segment < p.num_segments && p.segment_ends[segment] <= token) ++segment;
  return segment < p.num_segments ? segment : p.num_segments - 1;
}

inline float row_sum(const float* x, int64_t n) {
  Vec total = splat(0.0f);
  int64_t i = 0;
  for (; i + kVecWidth <= n; i += kVecWidth) total = add(total, load(x + i));
  if (i < n) total = add(total, load_n(x + i, n - i));
  return sum(total);
}

// Sum of (x - mean)^2.
inline float row_squares(const float* x, int64_t n, float mean) {
  Vec total = splat(0.0f);
  int64_t i = 0;
  for (; i + kVecWidth <= n; i += kVecWidth) {
    const Vec centered = sub(load(x + i), splat(mean));
    total = fma(centered, centered, total);
  }
  float result = sum(total);
  for (; i < n; ++i) result += (x[i] - mean) * (x[i] - mean);
  return result;
}

inline NormStatistics statistics_from(const AttentionParams& p, float mean, float squares,
                                      int64_t n) {
  const float count = static_cast<float>(n);
  if (p.qk_norm == QkNorm::kL2) {
    const float norm = __builtin_sqrtf(squares);
    // The clamp is done in float32, so that a zero row gives zeros also in float16.
    return {0.0f, 1.0f / (norm > p.qk_norm_epsilon ? norm : p.qk_norm_epsilon)};
  }
  return {mean, 1.0f / __builtin_sqrtf(squares / count + p.qk_norm_epsilon)};
}

inline NormStatistics head_statistics(const AttentionParams& p, const float* x) {
  const int64_t n = p.head_dim;
  const bool centered = p.qk_norm == QkNorm::kLayer;
  const float mean = centered ? row_sum(x, n) / static_cast<float>(n) : 0.0f;
  return statistics_from(p, mean, row_squares(x, n, mean), n);
}

// The leading pairs that fill whole vectors when the halves of the channels lie apart. Returns how
// many were rotated. cos_b and sin_b turn the second channel of a pair.
inline int64_t rotate_halves(const float* cos_a, const float* sin_a, const float* cos_b,
                             const float* sin_b, int64_t half, float* x) {
  int64_t i = 0;
  for (; i + kVecWidth <= half; i += kVecWidth) {
    const Vec a = load(x + i), b = load(x + half + i);
    store(x + i, sub(mul(a, load(cos_a + i)), mul(b, load(sin_a + i))));
    store(x + half + i, fma(a, load(sin_b + i), mul(b, load(cos_b + i))));
  }
  return i;
}

// RoPE in place on the first rotary_dim channels. cos and sin hold `width` floats: R / 2 (a pair
// shares its angle) or R.
inline void rotate(const AttentionParams& p, const float* cos, const float* sin, int64_t width,
                   float* x) {
  const int64_t half = p.rotary_dim / 2;
  const int64_t step = p.rotary_interleaved ? 2 : 1;
  const int64_t distance = p.rotary_interleaved ? 1 : half;
  const bool paired = width == half;
  const int64_t second_angle = paired ? 0 : half;
  int64_t i = 0;
  if (!p.rotary_interleaved) {
    i = rotate_halves(cos, sin, cos + second_angle, sin + second_angle, half, x);
  }
  for (; i < half; ++i) {
    const int64_t first = i * step, second = first + distance;
    const float a = x[first], b = x[second];
    const int64_t angle_a = paired ? i : first, angle_b = paired ? i : second;
    x[first] = a * cos[angle_a] - b * sin[angle_a];
    x[second] = b * cos[angle_b] + a * sin[angle_b];
  }
}

// The offset of a token's row in the caches. Position ids were checked before any kernel ran.
inline int64_t rotary_offset(const RotaryCache& r, int64_t batch, int64_t head, int64_t token) {
  const int64_t row =
      r.position_ids == nullptr ? token : r.position_ids[batch * r.position_batch_stride + token];
  return batch * r.batch_stride + head * r.head_stride + row * r.row_stride;
}

// scratch holds 2 * rotary_dim floats.
inline void apply_rotary(const RowTransform& t, int64_t batch, int64_t head, int64_t token,
                         float* x, float* scratch) {
  const RotaryCache& r = *t.rotary;
  if (r.cos == nullptr) return;
  const int64_t offset = rotary_offset(r, batch, head, token);
  if (r.dtype == DataType::kFloat32) {
    return rotate(*t.params, static_cast<const float*>(r.cos) + offset,
                  static_cast<const float*>(r.sin) + offset, r.width, x);
  }
  load_row(r.cos, r.dtype, offset, r.width, scratch);
  load_row(r.sin, r.dtype, offset, r.width, scratch + r.width);
  rotate(*t.params, scratch, scratch + r.width, r.width, x);
}

// Null where the parameter is absent.
inline const float* parameter_row(const NormParameter& parameter, int64_t segment, int64_t head,
                                  int64_t n, float* scratch) {
  if (parameter.data == nullptr) return nullptr;
  const int64_t offset = segment * parameter.segment_stride + head * parameter.head_stride;
  if (parameter.dtype == DataType::kFloat32) {
    return static_cast<const float*>(parameter.data) + offset;
  }
  load_row(parameter.data, parameter.dtype, offset, n, scratch);
  return scratch;
}

inline void apply_norm(const RowTransform& t, int64_t batch, int64_t head, int64_t token, float* x,
                       float* scratch) {
  const AttentionParams& p = *t.params;
  const int64_t n = p.head_dim;
  const NormStatistics s =
      t.hidden == nullptr ? head_statistics(p, x) : t.hidden[batch * t.rows + token];
  const int64_t segment = segment_of(p, token);
  const float* weight = parameter_row(*t.weight, segment, head, n, scratch);
  const float* bias = parameter_row(*t.bias, segment, head, n, scratch + n);
  const auto normal = [&](int64_t i, auto read) {
    Vec y = mul(sub(read(x + i), splat(s.mean)), splat(s.factor));
    if (weight != nullptr) y = mul(y, read(weight + i));
    return bias != nullptr ? add(y, read(bias + i)) : y;
  };
  int64_t i = 0;
  for (; i + kVecWidth <= n; i += kVecWidth)
    store(x + i, normal(i, [](auto* p) { return load(p); }));
  if (i < n) store_n(x + i, normal(i, [&](auto* p) { return load_n(p, n - i); }), n - i);
}

// Norm and RoPE in place; scratch holds 2 * head_dim floats.
inline void transform_row(const RowTransform& t, int64_t batch, int64_t head, int64_t token,
                          float* x, float* scratch) {
  const Rotary rotary = t.params->rotary;
  if (rotary == Rotary::kBeforeNorm) apply_rotary(t, batch, head, token, x, scratch);
  apply_norm(t, batch, head, token, x, scratch);
  if (rotary == Rotary::kAfterNorm) apply_rotary(t, batch, head, token, x, scratch);
}

// Statistics of one token over all heads. Two passes over the rows: the variance is taken about
// the mean, as the per-head norm does. buffer holds num_heads * head_dim floats.
inline NormStatistics token_statistics(const RowTransform& t, const StridedTensor& tensor,
                                       int64_t batch, int64_t token, float* buffer,
                                       float* scratch) {
  const AttentionParams& p = *t.params;
  const int64_t width = t.num_heads * p.head_dim;
  for (int64_t head = 0; head < t.num_heads; ++head) {
    float* row = buffer + head * p.head_dim;
    load_row(row_address(tensor, p.dtype, batch, head, token), p.dtype, 0, p.head_dim, row);
    if (p.rotary == Rotary::kBeforeNorm) apply_rotary(t, batch, head, token, row, scratch);
  }
  const bool centered = p.qk_norm == QkNorm::kLayer;
  const float mean = centered ? row_sum(buffer, width) / static_cast<float>(width) : 0.0f;
  return statistics_from(p, mean, row_squares(buffer, width, mean), width);
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
