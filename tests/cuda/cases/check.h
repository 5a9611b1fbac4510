// Compares a run of the kernels with the oracle.
#pragma once

#include <string>

#include "case_tensors.h"

namespace qkexport::cases {

struct CheckResult {
  bool passed = false;
  double error = 0.0;  // largest absolute error of the output
  double tolerance = 0.0;
  std::string message;  // empty where passed
};

// Makes the tensors of a case, runs the kernels and compares output and presents. The error may be
// twice that of an eager evaluation in the same type, plus one unit in the last place of the
// largest reference value: half for the weights and half for the output, which an eager evaluation
// rounds without error where a row sees a single key.
CheckResult check_case(const AttentionCase& c);

// The comparison alone, of tensors that a run has filled.
CheckResult compare_with_oracle(const AttentionCase& c, const CaseTensors& tensors);

}  // namespace qkexport::cases
