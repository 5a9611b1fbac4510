// The table of kernels that a translation unit of one instruction set exports.
#pragma once

#include "qkexport/cpu/append.h"
#include "qkexport/cpu/attend_item.h"
#include "qkexport/cpu/make_plan.h"
#include "qkexport/cpu/pack.h"
#include "qkexport/cpu/row_transforms.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

inline Vec evaluate_vector(int function, Vec v) {
  if (function == 0) return exp2(v);
  if (function == 1) return exp(v);
  return function == 2 ? tanh(v) : exp2_minus(v, 20);
}

inline void evaluate(int function, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kVecWidth) {
    const int64_t left = n - i;
    const Vec v = left < kVecWidth ? load_n(x + i, left) : load(x + i);
    const Vec result = evaluate_vector(function, v);
    if (left < kVecWidth) {
      store_n(y + i, result, left);
    } else {
      store(y + i, result);
    }
  }
}

constexpr KernelTable kernel_table(const char* name, const KernelTable* others = nullptr) {
  return {name,       make_plan, statistics_item, append_item,         pack_item, attend_item,
          merge_item, evaluate,  attend_rows,     attend_rows_scratch, serves,    others};
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
