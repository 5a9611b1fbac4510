// AttentionParams of a checked signature whose tensors are contiguous.
#pragma once

#include <array>
#include <cstdint>

#include "qkexport/attention_params.h"
#include "qkexport/op/signature.h"

namespace qkexport::op {

using InputPointers = std::array<const void*, kNumInputs>;
using OutputPointers = std::array<void*, kNumOutputs>;  // null where an output is not wanted

// The numeric types of both enums stand in the same order.
inline DataType data_type(ElementType type) { return static_cast<DataType>(type); }

// [batch, heads, rows, width], or [batch, rows, heads * width] with rank 3.
inline StridedTensor strided(const void* data, int64_t rank, int64_t heads, int64_t rows,
                             int64_t width) {
  void* mutable_data = const_cast<void*>(data);
  const int64_t batch_stride = heads * rows * width;
  if (rank == 3) return {mutable_data, batch_stride, width, heads * width};
  return {mutable_data, batch_stride, rows * width, width};
}

// The stride of an axis counted from the back; 0 where it is missing or of size 1.
inline int64_t broadcast_stride(const TensorType& tensor, int64_t axis) {
  if (axis > tensor.rank() || tensor.from_back(-axis) == 1) return 0;
  int64_t stride = 1;
  for (int64_t inner = 1; inner < axis; ++inner) stride *= tensor.from_back(-inner);
  return stride;
}

inline NormParameter norm_parameter(const Signature& s, const InputPointers& data, const Dims& dims,
                                    Input input) {
  const TensorType& tensor = s.inputs[input];
  if (!tensor.present) return {};
  const int64_t segment_axes = s.has(kSegmentEnds) ? 1 : 0;
  int64_t per_segment = 1;
  for (size_t i = static_cast<size_t>(segment_axes); i < tensor.shape.size(); ++i) {
    per_segment *= tensor.shape[i];
  }
  const bool shared = s.spec.norm_axis == NormAxis::kHead && tensor.rank() - segment_axes == 1;
  return {data[input], data_type(tensor.type), segment_axes * per_segment,
          shared ? 0 : dims.head_dim};
}

inline RotaryCache rotary_cache(const Signature& s, const InputPointers& data, Input cos,
                                Input sin) {
  const TensorType& tensor = s.inputs[cos];
  if (!tensor.present) return {};
  RotaryCache cache = {};
  cache.cos = data[cos];
  cache.sin = data[sin];
  cache.dtype = data_type(tensor.type);
  cache.width = tensor.from_back(-1);
  cache.num_rows = tensor.from_back(-2);
  cache.row_stride = cache.width;
  if (tensor.rank() == 2) {
    cache.position_ids = static_cast<const int64_t*>(data[kPositionIds]);
    cache.position_batch_stride = broadcast_stride(s.inputs[kPositionIds], 2);
    return cache;
  }
  cache.head_stride = tensor.rank() == 4 ? broadcast_stride(tensor, 3) : 0;
  cache.batch_stride = broadcast_stride(tensor, tensor.rank());
  return cache;
}

inline AttentionMask attention_mask(const Signature& s, const InputPointers& data) {
  const TensorType& mask = s.inputs[kAttnMask];
  if (!mask.present) return {};
  return {
      data[kAttnMask],           data_type(mask.type),      mask.rank() == 4 ? mask.shape[0] : 1,
      broadcast_stride(mask, 4), broadcast_stride(mask, 3), broadcast_stride(mask, 2),
      broadcast_stride(mask, 1)};
}

inline void fill_head_scale(const Signature& s, const InputPointers& data, AttentionParams& p) {
  const TensorType& scale = s.inputs[kHeadScale];
  if (!scale.present) return;
  p.head_scale = static_cast<const float*>(data[kHeadScale]);
  if (scale.rank() == 1) {
    p.head_scale_head_stride = broadcast_stride(scale, 1);
    return;
  }
  p.head_scale_batch_stride = broadcast_stride(scale, 4);
  p.head_scale_head_stride = broadcast_stride(scale, 3);
  p.head_scale_row_stride = broadcast_stride(scale, 2);
}

inline void fill_attributes(const AttentionSpec& spec, AttentionParams& p) {
  p.num_heads = spec.num_heads;
  p.num_kv_heads = spec.num_kv_heads;
  p.qk_norm = spec.qk_norm;
  p.norm_axis = spec.norm_axis;
  p.norm_rounding = spec.norm_rounding;
  p.rotary = spec.rotary;
  p.causal = spec.causal;
  p.kv_cache = spec.kv_cache;
  p.rotary_interleaved = spec.rotary_interleaved;
  p.normalize_key = spec.normalize_key;
  p.qk_norm_epsilon = spec.qk_norm_epsilon;
  p.scale = spec.scale;
  p.softcap = spec.softcap;
  p.window_left = spec.window_left;
  p.window_right = spec.window_right;
}

inline void fill_sizes(const Dims& dims, AttentionParams& p) {
  p.batch_size = dims.batch_size;
  p.seqlen_q = dims.seqlen_q;
  p.seqlen_kv = dims.seqlen_kv;
  p.seqlen_past = dims.seqlen_past;
  p.seqlen_total = dims.seqlen_total;
  p.head_dim = dims.head_dim;
  p.head_dim_v = dims.head_dim_v;
  p.rotary_dim = dims.rotary_dim;
  p.num_segments = dims.num_segments;
}

inline void fill_tensors(const Signature& s, const Dims& dims, const InputPointers& in,
                         const OutputPointers& out, AttentionParams& p) {
  const int64_t rank = s.rank(), heads = s.spec.num_heads, kv_heads = s.spec.num_kv_heads;
  p.query = strided(in[kQuery], rank, heads, dims.seqlen_q, dims.head_dim);
  p.key = strided(in[kKey], rank, kv_heads, dims.seqlen_kv, dims.head_dim);
  p.value = strided(in[kValue], rank, kv_heads, dims.seqlen_kv, dims.head_dim_v);
  p.output = strided(out[kOutput], rank, heads, dims.seqlen_q, dims.head_dim_v);
  p.past_key = strided(in[kPastKey], 4, kv_heads, dims.seqlen_past, dims.head_dim);
  p.past_value = strided(in[kPastValue], 4, kv_heads, dims.seqlen_past, dims.head_dim_v);
  p.present_key = strided(out[kPresentKey], 4, kv_heads, dims.seqlen_total, dims.head_dim);
  p.present_value = strided(out[kPresentValue], 4, kv_heads, dims.seqlen_total, dims.head_dim_v);
}

// All dimensions of the signature must be known.
inline AttentionParams fill_params(const Signature& s, const InputPointers& in,
                                   const OutputPointers& out) {
  const Dims dims = dims_of(s);
  AttentionParams p = {};
  p.dtype = data_type(s.inputs[kQuery].type);
  fill_attributes(s.spec, p);
  fill_sizes(dims, p);
  fill_tensors(s, dims, in, out, p);
  p.q_norm_weight = norm_parameter(s, in, dims, kQNormWeight);
  p.k_norm_weight = norm_parameter(s, in, dims, kKNormWeight);
  p.q_norm_bias = norm_parameter(s, in, dims, kQNormBias);
  p.k_norm_bias = norm_parameter(s, in, dims, kKNormBias);
  p.query_rotary = rotary_cache(s, in, kCosCache, kSinCache);
  p.key_rotary =
      s.has(kKeyCosCache) ? rotary_cache(s, in, kKeyCosCache, kKeySinCache) : p.query_rotary;
  p.mask = attention_mask(s, in);
  fill_head_scale(s, in, p);
  p.kv_lengths = static_cast<const int64_t*>(in[kKvLengths]);
  p.segment_ends = static_cast<const int64_t*>(in[kSegmentEnds]);
  return p;
}

}  // namespace qkexport::op
