// For formats that pack every number as well as any other.
#pragma once

#include "qkexport/cpu/plan.h"
#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

inline const KernelTable* fallback() { return nullptr; }

struct ValueRange {
  void see(Vec) {}
  bool packs() const { return true; }
};
inline bool norm_packs(float) { return true; }

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
