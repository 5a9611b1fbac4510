// Rules about the shapes of all inputs but the rotary caches. Dims are those of dims_of().
#pragma once

#include <string>
#include <vector>

#include "qkexport/op/signature.h"

namespace qkexport::op {

inline void check_projection(const Signature& s, Input input) {
  const TensorType& tensor = s.inputs[input];
  const std::string name = kInputNames[input];
  const int64_t heads = s.heads_of(input);
  if ((tensor.rank() != 3 && tensor.rank() != 4) || tensor.rank() != s.rank()) {
    refuse("query, key and value must share rank 3 or 4", name + " " + text(tensor));
  }
  const std::string heads_text = std::to_string(heads) + " heads";
  if (tensor.rank() == 4 && differ(tensor.shape[1], heads)) {
    refuse(name + " must have " + heads_text + " on axis 1", text(tensor));
  }
  const int64_t width = tensor.from_back(-1);
  if (tensor.rank() == 3 && width >= 0 && width % heads != 0) {
    refuse(name + " width must be a multiple of its " + heads_text, text(tensor));
  }
  if (width == 0) refuse(name + " must have at least one channel a head", text(tensor));
}

inline void check_sizes(const Signature& s, const Dims& dims) {
  const TensorType &query = s.inputs[kQuery], &key = s.inputs[kKey], &value = s.inputs[kValue];
  if (differ(key.shape[0], dims.batch_size) || differ(value.shape[0], dims.batch_size)) {
    refuse("query, key and value must have one batch size",
           text(query) + ", " + text(key) + " and " + text(value));
  }
  const size_t row = s.rank() == 3 ? 1 : 2;
  if (differ(key.shape[row], value.shape[row])) {
    refuse("key and value must be equally long", text(key) + " and " + text(value));
  }
  const int64_t of_query = head_dim_of(s, kQuery), of_key = head_dim_of(s, kKey);
  if (differ(of_query, of_key)) {
    refuse("head_dim of query and key must be equal",
           std::to_string(of_query) + " and " + std::to_string(of_key));
  }
}

inline void check_segments(const Signature& s, const Dims& dims) {
  if (!s.shaped(kSegmentEnds)) return;
  const TensorType& ends = s.inputs[kSegmentEnds];
  if (ends.rank() != 1 || ends.shape[0] == 0) {
    refuse("segment_ends must be [G] with at least one segment", text(ends));
  }
  if (differ(dims.seqlen_q, dims.seqlen_kv)) {
    refuse("segment_ends needs Sq == Skv",
           std::to_string(dims.seqlen_q) + " and " + std::to_string(dims.seqlen_kv));
  }
}

inline void check_norm_parameter(const Signature& s, const Dims& dims, Input input,
                                 int64_t num_heads) {
  if (!s.shaped(input)) return;
  const int64_t head_dim = dims.head_dim;
  std::vector<Shape> shapes = {{head_dim}, {num_heads, head_dim}};
  if (s.spec.norm_axis == NormAxis::kHidden) {
    shapes = {{head_dim < 0 ? kUnknown : num_heads * head_dim}};
  }
  std::string accepted;
  for (Shape& shape : shapes) {
    if (s.has(kSegmentEnds)) shape.push_front(dims.num_segments);
    if (fits(s.inputs[input].shape, shape)) return;
    accepted += (accepted.empty() ? "" : " or ") + text(shape);
  }
  refuse(std::string(kInputNames[input]) + " must be " + accepted, text(s.inputs[input]));
}

inline void check_mask(const Signature& s, const Dims& dims) {
  if (!s.shaped(kAttnMask)) return;
  const TensorType& mask = s.inputs[kAttnMask];
  const int64_t batch = mask.rank() == 4 ? mask.shape[0] : 1;
  const bool repeats = batch < 0 || dims.batch_size < 0 || batch == dims.batch_size ||
                       (batch > 0 && dims.batch_size % batch == 0);
  Shape target = {kUnknown, s.spec.num_heads, dims.seqlen_q, dims.seqlen_total};
  if (repeats && broadcasts(mask.shape, target)) return;
  target[0] = dims.batch_size;
  refuse("attn_mask must broadcast to " + text(target), text(mask),
         "its batch may also be a divisor of the batch size.");
}

inline void check_head_scale(const Signature& s, const Dims& dims) {
  if (!s.shaped(kHeadScale)) return;
  const TensorType& scale = s.inputs[kHeadScale];
  const Shape target = {dims.batch_size, s.spec.num_heads, dims.seqlen_q, 1};
  const bool per_head = fits(scale.shape, {1}) || fits(scale.shape, {s.spec.num_heads});
  if (per_head || (scale.rank() != 1 && broadcasts(scale.shape, target))) return;
  refuse("head_scale must be [1], [" + std::to_string(s.spec.num_heads) + "] or broadcast to " +
             text(target),
         text(scale));
}

inline void check_past(const Signature& s, const Dims& dims, Input input, int64_t width) {
  if (!s.shaped(input)) return;
  const TensorType& past = s.inputs[input];
  const Shape target = {dims.batch_size, s.spec.num_kv_heads, dims.seqlen_past, width};
  if (past.rank() != 4) refuse(std::string(kInputNames[input]) + " must have rank 4", text(past));
  if (!fits(past.shape, target)) {
    refuse(std::string(kInputNames[input]) + " must be " + text(target), text(past));
  }
}

inline void check_lengths(const Signature& s, const Dims& dims) {
  if (!s.shaped(kKvLengths) || fits(s.inputs[kKvLengths].shape, {dims.batch_size})) return;
  refuse("kv_lengths must be " + text(Shape{dims.batch_size}), text(s.inputs[kKvLengths]));
}

inline void check_shapes(const Signature& s, const Dims& dims) {
  check_sizes(s, dims);
  check_segments(s, dims);
  for (const Input input : {kQNormWeight, kQNormBias}) {
    check_norm_parameter(s, dims, input, s.spec.num_heads);
  }
  for (const Input input : {kKNormWeight, kKNormBias}) {
    check_norm_parameter(s, dims, input, s.spec.num_kv_heads);
  }
  check_mask(s, dims);
  check_head_scale(s, dims);
  check_past(s, dims, kPastKey, dims.head_dim);
  check_past(s, dims, kPastValue, dims.head_dim_v);
  check_lengths(s, dims);
}

}  // namespace qkexport::op
