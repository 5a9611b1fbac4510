// The kernels that this processor can run; every test of a kernel runs for each.
#pragma once

#include <algorithm>
#include <vector>

#include "qkexport/cpu/attention_cpu.h"

inline std::vector<const qkexport::cpu::KernelTable*> all_kernels() {
  std::vector<const qkexport::cpu::KernelTable*> found;
  for (const char* name : {"portable", "avx2", "avx512", "amx"}) {
    const auto* kernels = qkexport::cpu::find_kernels(name);
    if (kernels != nullptr) found.push_back(kernels);
  }
  return found;
}

// Those that compute a call themselves, each once.
inline std::vector<const qkexport::cpu::KernelTable*> kernels_for(
    const qkexport::AttentionParams& params) {
  std::vector<const qkexport::cpu::KernelTable*> found;
  for (const auto* kernels : all_kernels()) {
    const auto* serving = &qkexport::cpu::serving_kernels(*kernels, params);
    if (std::find(found.begin(), found.end(), serving) == found.end()) found.push_back(serving);
  }
  return found;
}
