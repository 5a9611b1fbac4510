// The problems that timings and statistics are given for.
#pragma once

#include <string>
#include <vector>

#include "attention_case.h"

namespace qkexport::gpu {

struct NamedProblem {
  std::string name;
  cases::AttentionCase problem;
};

const std::vector<NamedProblem>& named_problems();

// Of the two products, masked work not counted.
double flops(const cases::AttentionCase& c);

// Query, new keys, values and output once each, the new keys once more as they are written; past
// rows once.
double least_bytes(const cases::AttentionCase& c);

}  // namespace qkexport::gpu
