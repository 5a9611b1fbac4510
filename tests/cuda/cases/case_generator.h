// Cases in which every pair of choices occurs together at least once.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_case.h"

namespace qkexport::cases {

// `count` cases, or as many as it takes to cover all pairs where count is 0. Equal seeds give
// equal cases. Sizes stay below `max_seqlen`.
std::vector<AttentionCase> covering_cases(uint64_t seed, int64_t count, int64_t max_seqlen);

}  // namespace qkexport::cases
