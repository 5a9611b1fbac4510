// The norm of one row: statistics over its channels, then gain and bias.
//
// Rounding to the tensor type before the gain (norm_rounding) is skipped: values stay float until
// they are stored, which keeps more precision than the contract asks for.
#pragma once

#include <cfloat>

#include "device/element_types.cuh"
#include "kernel_arguments.h"

namespace qkexport::cuda {

// Finishes sums over `count` channels: of squares, or of squared distances from the mean. Under l2
// a zero row stays zero, also where 1 / epsilon overflows; comparisons instead of fmaxf let NaN
// pass.
QKEXPORT_DEVICE float inverse_norm(const AttentionParams& p, float sum_of_squares, float count) {
  if (p.qk_norm == QkNorm::kL2) {
    const float norm = sqrtf(sum_of_squares);
    const float inverse = 1.0f / (norm < p.qk_norm_epsilon ? p.qk_norm_epsilon : norm);
    return inverse > FLT_MAX ? FLT_MAX : inverse;
  }
  return 1.0f / sqrtf(sum_of_squares / count + p.qk_norm_epsilon);
}

// Gain row of a token of a joint attention: the number of segments that end at or before it.
QKEXPORT_DEVICE int64_t segment_of(const AttentionParams& p, int64_t position) {
  if (p.segment_ends == nullptr) return 0;
  int64_t segment = 0;
  while (segment + 1 < p.num_segments && p.segment_ends[segment] <= position) ++segment;
  return segment;
}

// Gain and bias of one (segment, head).
struct NormRow {
  const NormParameter* weight;
  const NormParameter* bias;
  int64_t weight_base;
  int64_t bias_base;

  QKEXPORT_DEVICE NormRow(const AttentionParams& p, const NormParameter& weight,
                          const NormParameter& bias, int head, int position)
      : weight(&weight), bias(&bias) {
    const int64_t segment = segment_of(p, position);
    weight_base = segment * weight.segment_stride + head * weight.head_stride;
    bias_base = segment * bias.segment_stride + head * bias.head_stride;
  }

  QKEXPORT_DEVICE float apply(float x, const RowStatistics& statistics, int channel) const {
    float y = (x - statistics.mean) * statistics.inverse;
    if (weight->data != nullptr)
      y *= load_float(weight->data, weight->dtype, weight_base + channel);
    if (bias->data != nullptr) y += load_float(bias->data, bias->dtype, bias_base + channel);
    return y;
  }
};

}  // namespace qkexport::cuda
