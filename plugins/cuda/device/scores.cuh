// From q.k to the logarithm of a weight: scale, head_scale, softcap and bias, in base 2.
#pragma once

#include <cfloat>
#include <cmath>

#include "device/platform.cuh"
#include "kernel_arguments.h"

namespace qkexport::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// scale * head_scale of one query row.
QKEXPORT_DEVICE float row_scale(const AttentionParams& p, int64_t batch, int head, int position) {
  if (p.head_scale == nullptr) return p.scale;
  return p.scale *
         p.head_scale[batch * p.head_scale_batch_stride + head * p.head_scale_head_stride +
                      position * p.head_scale_row_stride];
}

// softcap * tanh(score / softcap), or the score where there is no cap.
QKEXPORT_DEVICE float capped(const AttentionParams& p, float score) {
  return p.softcap == 0.0f ? score : p.softcap * tanhf(score / p.softcap);
}

// A bias in exponents of two. One as large as the type holds stays finite there: unlike -infinity
// it hides nothing, and a row of nothing else is an average.
QKEXPORT_DEVICE float bias_exponent(float bias) {
  const float exponent = bias * kLog2E;
  return exponent < -FLT_MAX ? -FLT_MAX : exponent;
}

// The exponent that maximum m and factor f subtract: 0 while nothing is visible, so that
// -infinity - (-infinity) never arises.
QKEXPORT_DEVICE float shift_of(float maximum, float factor) {
  return maximum == -INFINITY ? 0.0f : maximum * factor;
}

}  // namespace qkexport::cuda
