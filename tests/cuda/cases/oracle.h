// The operator's formulas in double precision, and the same in the arithmetic of an eager
// framework.
#pragma once

#include <cstdint>
#include <vector>

#include "qkexport/attention_params.h"

namespace qkexport::cases {

struct OracleResult {
  std::vector<double> output;         // [B, H, Sq, Dv]
  std::vector<double> present_key;    // [B, Hkv, T, D], empty unless asked for
  std::vector<double> present_value;  // [B, Hkv, T, Dv]
};

// Pointers of `params` are host pointers. The output tensors are not written.
OracleResult exact(const AttentionParams& params);

// One operator at a time: sums in float, every result rounded to the tensor type. Its error is the
// yardstick for a fused kernel.
OracleResult eager(const AttentionParams& params);

}  // namespace qkexport::cases
