// What a CUDA kernel finds when the host compiler builds it for the emulation.
//
// A CUDA thread is a fiber. It runs until it meets a barrier or a warp collective, where it waits
// for the others; which thread runs next is drawn from a seeded generator. Included by the
// kernels' platform header in place of the CUDA runtime.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda_emulation/numbers.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct uint2 {
  alignas(8) uint32_t x;
  uint32_t y;
};
struct uint4 {
  alignas(16) uint32_t x;
  uint32_t y, z, w;
};

namespace cuda_emulation {

int thread_index();
int64_t block_index();
unsigned char* shared_memory();

// Barriers. Each call names what it is, so that threads that meet in different ones are reported.
void sync_threads();
bool sync_threads_or(bool value);
void sync_warp();

// Warp collectives with the lane layouts of the PTX manual.
float shuffle(float value, int source_lane);
uint32_t shared_address(const void* pointer);  // bytes from the start of shared memory
void ldmatrix_x4(uint32_t (&out)[4], uint32_t row, bool transposed);
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool is_bfloat16);

// Asynchronous copies: the target is poisoned at once and filled at the wait.
void cp_async_16(void* shared, const void* global, bool valid);
void cp_async_commit();
void cp_async_wait(int pending);

// ex2.approx.ftz: exact here, results and arguments below the normal range flushed to zero.
float exp2_flushed(float value);

inline int opaque(int value) { return value; }

int compute_capability();

// Runs `thread` once for every thread of every block. False where something was reported; the
// report is last_failure().
bool launch(const std::function<void()>& thread, int64_t blocks, int threads,
            std::size_t shared_bytes);

}  // namespace cuda_emulation

namespace qkexport::cuda {
using cuda_emulation::block_index;
using cuda_emulation::opaque;
using cuda_emulation::shared_memory;
using cuda_emulation::sync_threads;
using cuda_emulation::sync_threads_or;
using cuda_emulation::sync_warp;
using cuda_emulation::thread_index;
}  // namespace qkexport::cuda
