// Exchange of values between the lanes of a warp; every lane of the warp takes part.
#pragma once

#include "device/platform.cuh"

namespace qkexport::cuda {

#if defined(QKEXPORT_CUDA_EMULATION)

QKEXPORT_DEVICE float shuffle_xor(float value, int lane_mask) {
  return cuda_emulation::shuffle(value, lane_index() ^ lane_mask);
}
QKEXPORT_DEVICE float shuffle(float value, int source_lane) {
  return cuda_emulation::shuffle(value, source_lane);
}
QKEXPORT_DEVICE float exp2_approximate(float value) { return cuda_emulation::exp2_flushed(value); }

#else

QKEXPORT_DEVICE float shuffle_xor(float value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
QKEXPORT_DEVICE float shuffle(float value, int source_lane) {
  return __shfl_sync(0xffffffffu, value, source_lane);
}

// 2^value with at most 2 ulp error; results below the normal range are zero. exp2f would add a
// rescaling for denormal results to every element.
QKEXPORT_DEVICE float exp2_approximate(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

#endif

// Sum and maximum over the kLanes lanes of an aligned group; every lane receives the result. fmaxf
// ignores NaN.
template <int kLanes>
QKEXPORT_DEVICE float group_sum(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
template <int kLanes>
QKEXPORT_DEVICE float group_max(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

}  // namespace qkexport::cuda
