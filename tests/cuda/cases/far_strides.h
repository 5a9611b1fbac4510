// Cases whose tensors are spread over more elements than 32 bits count.
#pragma once

#include <string>

#include "check.h"

namespace qkexport::cases {

enum class FarAxis { kBatch, kHead, kRow };

// Runs a case on views of one region in which the last batch entry or head of every tensor, or the
// last row of the longest, begins more than 2^31 elements behind the first, and compares output and
// presents. Only the rows themselves are touched, so the host needs no memory for the gaps; a
// device needs up to 9 GB, and the message says so where it has not got them.
CheckResult check_far_case(const AttentionCase& c, FarAxis axis);

}  // namespace qkexport::cases
