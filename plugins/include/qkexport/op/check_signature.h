// All rules of the contract about the tensors of one node.
#pragma once

#include "qkexport/op/input_rules.h"
#include "qkexport/op/rotary_rules.h"
#include "qkexport/op/shape_rules.h"

namespace qkexport::op {

// Throws Refusal. What is not known yet (ranks, dimensions) is checked again at run time.
inline void check_signature(const Signature& s) {
  check_presence(s);
  check_companions(s);
  check_types(s);
  for (const Input input : {kQuery, kKey, kValue}) {
    if (s.shaped(kQuery) && s.shaped(input)) check_projection(s, input);
  }
  if (!s.projections_shaped()) return;
  const Dims dims = dims_of(s);
  check_shapes(s, dims);
  check_rotary(s, dims);
}

}  // namespace qkexport::op
