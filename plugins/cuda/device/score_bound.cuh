// Softmax without a running maximum where the scores are known to be small.
//
// After QK norm |score| <= b = |scale * head_scale| * ||q|| * max ||k||, and softcap bounds it too.
// Weights relative to a fixed exponent c instead of the row's maximum are 2^(s - c), s in [-b, b]
// (base 2). They must neither overflow nor lose the row's largest weight among numbers that the
// type of P rounds coarsely:
//   bf16 has float's exponent range: with c = b weights are at most 1, so nothing can overflow that
//   does not overflow with a running maximum; the largest weight of a row is at least 2^-2b. With
//   2b <= 64 it stays 62 binades above the smallest normal number, as far as values of 2^-62 reach.
//   fp16 is normal down to 2^-14: with c = b - 15 weights are at most 2^15 < 65504, and the largest
//   is at least 2^(15 - 2b). With 2b <= 15 that is 1 or more, so small weights are rounded no more
//   coarsely against it than with a running maximum.
// Float accumulators hold 2^15 * 65504 * 2^28 keys without overflow.
#pragma once

#include "device/row_transform.cuh"
#include "device/scores.cuh"
#include "tile_config.cuh"

namespace qkexport::cuda {

struct ScoreBound {
  bool usable;
  float shift;  // c, in exponents of two

  // `bound` is b in exponents of two; NaN and infinity are not usable.
  template <class T>
  QKEXPORT_DEVICE static ScoreBound of(float bound) {
    constexpr bool kIsHalf = T::kExponentMask == 0x7c00;
    constexpr float kLargestBound = kIsHalf ? 7.5f : 32.0f;
    return {bound <= kLargestBound, kIsHalf ? bound - 15.0f : bound};
  }
};

// Largest ||k|| of one kv head, from the maxima that the key prologue left; for every lane.
QKEXPORT_DEVICE float largest_key_norm(const KernelArguments& arguments, int64_t batch,
                                       int kv_head) {
  const int count = arguments.num_key_tiles * kAttentionWarps;
  const float* norms =
      arguments.key_norms + (batch * arguments.params.num_kv_heads + kv_head) * count;
  float largest = 0.0f;
#pragma unroll 1
  for (int i = lane_index(); i < count; i += kWarpSize) {
    largest = fmaxf(largest, norms[i]);
  }
  return group_max<kWarpSize>(largest);
}

// The bound of one row. A thousandth covers the roundings of both norms and of the score itself.
QKEXPORT_DEVICE float row_bound(const AttentionParams& p, float scale, float query_norm,
                                float key_norm) {
  const float bound = fabsf(scale) * query_norm * key_norm;
  const float limited = p.softcap == 0.0f ? bound : fminf(bound, p.softcap);
  return limited * kLog2E * 1.001f;
}

}  // namespace qkexport::cuda
