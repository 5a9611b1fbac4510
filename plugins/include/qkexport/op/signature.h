// A spec together with the inputs of one node. Dimensions may be unknown when the node is created;
// when it runs, all are numbers.
#pragma once

#include <array>
#include <cstdint>

#include "qkexport/op/roles.h"
#include "qkexport/op/spec.h"
#include "qkexport/op/tensor_type.h"

namespace qkexport::op {

// Sizes of one attention; kUnknown where not known.
struct Dims {
  int64_t batch_size;
  int64_t seqlen_q;
  int64_t seqlen_kv;
  int64_t seqlen_past;
  int64_t seqlen_total;
  int64_t head_dim;
  int64_t head_dim_v;
  int64_t rotary_dim;
  int64_t num_segments;
};

struct Signature {
  AttentionSpec spec;
  std::array<TensorType, kNumInputs> inputs;
  int num_outputs;

  bool has(Input input) const { return inputs[input].present; }
  // Whether rules about the shape of this input can be checked.
  bool shaped(Input input) const { return inputs[input].present && inputs[input].has_shape; }
  bool projections_shaped() const { return shaped(kQuery) && shaped(kKey) && shaped(kValue); }
  int64_t rank() const { return inputs[kQuery].rank(); }
  int64_t heads_of(Input input) const {
    return input == kQuery ? spec.num_heads : spec.num_kv_heads;
  }
};

inline int64_t head_dim_of(const Signature& s, Input input) {
  const int64_t width = s.inputs[input].from_back(-1);
  return s.rank() == 4 || width < 0 ? width : width / s.heads_of(input);
}

inline int64_t sum_known(int64_t a, int64_t b) { return a < 0 || b < 0 ? kUnknown : a + b; }

// Needs the ranks of query, key and value.
inline Dims dims_of(const Signature& s) {
  const auto size = [&](Input input, int64_t axis) { return s.inputs[input].shape[axis]; };
  const int64_t row = s.rank() == 3 ? 1 : 2;
  Dims dims = {};
  dims.batch_size = first_known(size(kQuery, 0), first_known(size(kKey, 0), size(kValue, 0)));
  dims.seqlen_q = size(kQuery, row);
  dims.seqlen_kv = first_known(size(kKey, row), size(kValue, row));
  if (s.has(kPastKey)) {
    const bool known = s.shaped(kPastKey) && s.inputs[kPastKey].rank() == 4;
    dims.seqlen_past = known ? size(kPastKey, 2) : kUnknown;
  }
  dims.seqlen_total = s.spec.kv_cache == KvCache::kStatic
                          ? dims.seqlen_past
                          : sum_known(dims.seqlen_past, dims.seqlen_kv);
  dims.head_dim = first_known(head_dim_of(s, kQuery), head_dim_of(s, kKey));
  dims.head_dim_v = head_dim_of(s, kValue);
  if (s.spec.rotary != Rotary::kNone) {
    dims.rotary_dim = s.spec.rotary_dim > 0 ? s.spec.rotary_dim : dims.head_dim;
  }
  dims.num_segments = 1;
  if (s.has(kSegmentEnds)) {
    const bool known = s.shaped(kSegmentEnds) && s.inputs[kSegmentEnds].rank() == 1;
    dims.num_segments = known ? size(kSegmentEnds, 0) : kUnknown;
  }
  return dims;
}

// Shapes of all three outputs. Needs the ranks of query, key and value.
inline std::array<Shape, kNumOutputs> output_shapes(const Signature& s) {
  const Dims d = dims_of(s);
  const int64_t heads = s.spec.num_heads, kv_heads = s.spec.num_kv_heads;
  const int64_t width = d.head_dim_v < 0 ? kUnknown : heads * d.head_dim_v;
  const Shape output = s.rank() == 3 ? Shape{d.batch_size, d.seqlen_q, width}
                                     : Shape{d.batch_size, heads, d.seqlen_q, d.head_dim_v};
  return {output, Shape{d.batch_size, kv_heads, d.seqlen_total, d.head_dim},
          Shape{d.batch_size, kv_heads, d.seqlen_total, d.head_dim_v}};
}

}  // namespace qkexport::op
