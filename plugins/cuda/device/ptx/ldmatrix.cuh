// ldmatrix.sync.aligned.m8n8.x4: four 8x8 matrices of 16-bit elements from shared memory.
//
// Lane l gives the shared address of the 16-byte row l % 8 of matrix l / 8, and receives in out[i]
// the elements 2t, 2t+1 of row g of matrix i (g = l / 4, t = l % 4), or, transposed, the elements g
// of rows 2t and 2t+1.
#pragma once

#include "device/platform.cuh"

namespace qkexport::cuda {

#if defined(QKEXPORT_CUDA_EMULATION)

QKEXPORT_DEVICE uint32_t shared_address(const void* pointer) {
  return cuda_emulation::shared_address(pointer);
}
QKEXPORT_DEVICE void ldmatrix_x4(uint32_t (&out)[4], uint32_t row) {
  cuda_emulation::ldmatrix_x4(out, row, /*transposed=*/false);
}
QKEXPORT_DEVICE void ldmatrix_x4_transposed(uint32_t (&out)[4], uint32_t row) {
  cuda_emulation::ldmatrix_x4(out, row, /*transposed=*/true);
}

#else

// A pointer into shared memory in the 32 bits that its address space needs.
QKEXPORT_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
QKEXPORT_DEVICE void ldmatrix_x4(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}
QKEXPORT_DEVICE void ldmatrix_x4_transposed(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

#endif

}  // namespace qkexport::cuda
