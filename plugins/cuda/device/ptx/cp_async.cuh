// cp.async: 16 bytes from global to shared memory without a register in between.
//
// The bytes have arrived for the thread that copied them after cp_async_wait, for the others after
// a barrier behind it. With valid == false nothing is read and zeros are written. Before sm_80 the
// copy is an ordinary load and store, and commit and wait are empty: copies_asynchronously() says
// which it is.
#pragma once

#include "device/platform.cuh"

namespace qkexport::cuda {

#if defined(QKEXPORT_CUDA_EMULATION)

// An architecture is given to the emulation when it runs.
QKEXPORT_DEVICE bool copies_asynchronously() { return cuda_emulation::compute_capability() >= 80; }

QKEXPORT_DEVICE void cp_async_16(void* shared, const void* global, bool valid) {
  cuda_emulation::cp_async_16(shared, global, valid);
}
QKEXPORT_DEVICE void cp_async_commit() { cuda_emulation::cp_async_commit(); }
template <int kPending>
QKEXPORT_DEVICE void cp_async_wait() {
  cuda_emulation::cp_async_wait(kPending);
}

#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

QKEXPORT_DEVICE constexpr bool copies_asynchronously() { return true; }

// L2 fetches 128 bytes: the neighbouring chunks of a row are asked for by the same warp anyway.
QKEXPORT_DEVICE void cp_async_16(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(address),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
QKEXPORT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
QKEXPORT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

#else

QKEXPORT_DEVICE constexpr bool copies_asynchronously() { return false; }

QKEXPORT_DEVICE void cp_async_16(void* shared, const void* global, bool valid) {
  uint4 value = make_uint4(0, 0, 0, 0);
  if (valid) value = *static_cast<const uint4*>(global);
  *static_cast<uint4*>(shared) = value;
}
QKEXPORT_DEVICE void cp_async_commit() {}
template <int kPending>
QKEXPORT_DEVICE void cp_async_wait() {}

#endif

}  // namespace qkexport::cuda
