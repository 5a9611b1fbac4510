// What a kernel asks of its platform: indices, shared memory and barriers.
//
// Under QKEXPORT_CUDA_EMULATION the same kernels are compiled by the host compiler against the
// emulation of the tests, which supplies these names itself.
#pragma once

#include <cstdint>

#if defined(QKEXPORT_CUDA_EMULATION)

#include "cuda_emulation/device.h"

#else

#include <cuda_runtime.h>

namespace qkexport::cuda {

__device__ __forceinline__ int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int64_t block_index() { return static_cast<int64_t>(blockIdx.x); }

// The dynamic shared memory of the block; kernels declare no static shared memory.
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
  return dynamic_shared_memory;
}

__device__ __forceinline__ void sync_threads() { __syncthreads(); }
__device__ __forceinline__ bool sync_threads_or(bool value) { return __syncthreads_or(value) != 0; }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

// The same value, of which the compiler knows nothing: what depends on it is not computed ahead of
// a loop and then kept in registers.
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace qkexport::cuda

#endif

#define QKEXPORT_DEVICE __device__ __forceinline__

namespace qkexport::cuda {

inline constexpr int kWarpSize = 32;

QKEXPORT_DEVICE int lane_index() { return thread_index() % kWarpSize; }
QKEXPORT_DEVICE int warp_index() { return thread_index() / kWarpSize; }

}  // namespace qkexport::cuda
