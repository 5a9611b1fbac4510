// Online softmax in base 2 over the score fragments of a warp.
//
// Per row: m, the largest score so far (in units in which `factor` turns a score into an exponent
// of two), d, the sum of weights of this lane's columns, and o, the weighted values. With a bound
// on the scores m never changes and o is never rescaled.
#pragma once

#include "device/fragments.cuh"
#include "device/ptx/warp.cuh"
#include "device/scores.cuh"

namespace qkexport::cuda {

template <int kRowFragments>
struct SoftmaxState {
  float m[kRowFragments][2];
  float d[kRowFragments][2];

  QKEXPORT_DEVICE void clear() {
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
      m[f][0] = m[f][1] = -INFINITY;
      d[f][0] = d[f][1] = 0.0f;
    }
  }

  // Makes every m a constant: raise_maximum must not be called any more.
  QKEXPORT_DEVICE void fix_maximum(float maximum) {
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) m[f][0] = m[f][1] = maximum;
  }

  // Raises m to the maximum of the scores and rescales d and o accordingly.
  template <int kBlockN, int kHeadDim>
  QKEXPORT_DEVICE void raise_maximum(const Accumulator<kRowFragments, kBlockN>& s,
                                     Accumulator<kRowFragments, kHeadDim>& o, float factor) {
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float maximum = m[f][r];
#pragma unroll
        for (int n = 0; n < kBlockN / 8; ++n) {
          maximum = fmaxf(maximum, fmaxf(s.value[f][n][2 * r], s.value[f][n][2 * r + 1]));
        }
        maximum = group_max<4>(maximum);
        const float shift = shift_of(maximum, factor);
        const float correction = exp2_approximate(m[f][r] * factor - shift);
        m[f][r] = maximum;
        d[f][r] *= correction;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          o.value[f][n][2 * r] *= correction;
          o.value[f][n][2 * r + 1] *= correction;
        }
      }
    }
  }

  // Turns scores into weights and adds them to d.
  template <int kBlockN>
  QKEXPORT_DEVICE void weigh(Accumulator<kRowFragments, kBlockN>& s, float factor) {
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float shift = shift_of(m[f][r], factor);
#pragma unroll
        for (int n = 0; n < kBlockN / 8; ++n) {
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e) {
            s.value[f][n][e] = exp2_approximate(s.value[f][n][e] * factor - shift);
            d[f][r] += s.value[f][n][e];
          }
        }
      }
    }
  }

  // Completes d over the four lanes that share a row.
  QKEXPORT_DEVICE void finish() {
#pragma unroll
    for (int f = 0; f < kRowFragments; ++f) {
#pragma unroll
      for (int r = 0; r < 2; ++r) d[f][r] = group_sum<4>(d[f][r]);
    }
  }
};

}  // namespace qkexport::cuda
