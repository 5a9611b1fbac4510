// The kernels that this processor can run; every test of a kernel runs for each.
#pragma once

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

// Those that serve a type themselves.
inline std::vector<const qkexport::cpu::KernelTable*> kernels_for(qkexport::DataType type) {
  std::vector<const qkexport::cpu::KernelTable*> found;
  for (const auto* kernels : all_kernels()) {
    const bool all_types = kernels->other_types == nullptr;
    if (all_types || type == qkexport::DataType::kBFloat16) found.push_back(kernels);
  }
  return found;
}
