// The kernels that this processor can run; every test of a kernel runs for each.
#pragma once

#include <vector>

#include "qkexport/cpu/attention_cpu.h"

inline std::vector<const qkexport::cpu::KernelTable*> all_kernels() {
  std::vector<const qkexport::cpu::KernelTable*> found;
  for (const char* name : {"portable", "avx2", "avx512", "avx512_bf16"}) {
    const auto* kernels = qkexport::cpu::find_kernels(name);
    if (kernels != nullptr) found.push_back(kernels);
  }
  return found;
}
