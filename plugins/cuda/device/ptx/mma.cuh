// mma.sync.aligned.m16n8k16.row.col: d = a * b + d with float accumulation.
//
// Fragments of lane l, group g = l / 4, t = l % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   a[0] rows g,     channels 2t, 2t+1      b[0] channels 2t, 2t+1 of column g
//   a[1] rows g + 8, channels 2t, 2t+1      b[1] channels 2t+8, 2t+9 of column g
//   a[2] rows g,     channels 2t+8, 2t+9    d[0], d[1] row g,     columns 2t, 2t+1
//   a[3] rows g + 8, channels 2t+8, 2t+9    d[2], d[3] row g + 8, columns 2t, 2t+1
// Before sm_80 there is only m16n8k8 for fp16: two of them make one k16 step, because a[0], a[1],
// b[0] and a[2], a[3], b[1] are its fragments. bf16 has no tensor core there: has_mma says so.
#pragma once

#include <type_traits>

#include "device/element_types.cuh"

namespace qkexport::cuda {

// Whether the architecture that this is compiled for multiplies T. Host code is compiled as if for
// the newest.
template <class T>
QKEXPORT_DEVICE constexpr bool has_mma() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return std::is_same_v<T, Half>;
#else
  return true;
#endif
}

#if defined(QKEXPORT_CUDA_EMULATION)

template <class T>
QKEXPORT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  cuda_emulation::mma_m16n8k16(d, a, b, std::is_same_v<T, BFloat16>);
}

#else

template <class T>
QKEXPORT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

template <>
QKEXPORT_DEVICE void mma_m16n8k16<Half>(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
#endif
}

template <>
QKEXPORT_DEVICE void mma_m16n8k16<BFloat16>(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

#endif

}  // namespace qkexport::cuda
