// Which kernels this processor can run.
#include <cstring>

#include "amx.h"
#include "qkexport/cpu/attention_cpu.h"

namespace qkexport::cpu {

extern const KernelTable kPortableKernels;
#if QKEXPORT_X86
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif
#if QKEXPORT_AMX
extern const KernelTable kAmxKernels;
#endif

namespace {

bool has_avx2() {
#if QKEXPORT_X86
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

bool has_avx512() {
#if QKEXPORT_X86
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

}  // namespace

const KernelTable* find_kernels(const char* name) {
#if QKEXPORT_AMX
  const bool amx = has_avx512() && has_amx();
  if (amx && (name == nullptr || std::strcmp(name, "amx") == 0)) return &kAmxKernels;
#endif
#if QKEXPORT_X86
  if (has_avx512() && (name == nullptr || std::strcmp(name, "avx512") == 0)) {
    return &kAvx512Kernels;
  }
  if (has_avx2() && (name == nullptr || std::strcmp(name, "avx2") == 0)) return &kAvx2Kernels;
#endif
  if (name == nullptr || std::strcmp(name, "portable") == 0) return &kPortableKernels;
  return nullptr;
}

const char* available_kernels() {
  if (has_avx512() && has_amx()) return "portable, avx2, avx512, amx";
  if (has_avx512()) return "portable, avx2, avx512";
  return has_avx2() ? "portable, avx2" : "portable";
}

}  // namespace qkexport::cpu
