// The vocabulary of every kernel and adapter: one plain struct that an adapter fills once.
//
// Symbols in shapes: batch_size B, seqlen_q Sq, seqlen_kv Skv (new keys), seqlen_past P,
// seqlen_total T (P + Skv, or the rows M of a static cache), num_heads H, num_kv_heads Hkv,
// head_dim D of query and key, head_dim_v Dv of value, rotary_dim R, num_segments G.
// No framework header may be included here: the struct is shared by host and device code.
#pragma once

#include <cstdint>

namespace qkexport {

enum class DataType : int32_t { kFloat32, kFloat16, kBFloat16, kBool };

enum class QkNorm : int32_t { kRms, kLayer, kL2 };
enum class NormAxis : int32_t { kHead, kHidden };
enum class NormRounding : int32_t { kAfterWeight, kBeforeWeight };
enum class Rotary : int32_t { kNone, kAfterNorm, kBeforeNorm };
enum class Causal : int32_t { kNone, kUpperLeft, kLowerRight };
enum class KvCache : int32_t { kConcat, kStatic };

// What the verbs of the core answer. They never throw, print, allocate, synchronize or exit.
enum class Status : int32_t {
  kSuccess,
  kInvalidShape,     // a size or stride that the contract forbids
  kUnsupportedType,  // a data type this kernel has no path for
  kUnsupportedSize,  // legal by the contract, outside what this kernel implements
  kWorkspaceTooSmall,
  kInvalidPosition,  // a position id outside the cache (reported by the CPU kernels only)
  kLaunchFailed,     // the device runtime refused a launch
};

// A [batch, head, row, channel] tensor read in place. Strides count elements; the channel stride
// is always 1. BSNH and BNSH layouts differ only in the order of magnitude of their strides.
// data may be null only where the tensor is absent or has no elements.
struct StridedTensor {
  void* data;
  int64_t batch_stride;
  int64_t head_stride;
  int64_t row_stride;
};

// A gain or bias of the norm: element (segment, head, channel) is
// data[segment * segment_stride + head * head_stride + channel]. A weight shared by the heads has
// head_stride 0; whole-width weights [H * D] have head_stride D.
struct NormParameter {
  const void* data;  // null: absent
  DataType dtype;
  int64_t segment_stride;
  int64_t head_stride;
};

// The cos and sin tables of RoPE. With position_ids the row is position_ids[b, s] (num_rows is the
// bound); without, the row is s. width is R / 2 (a pair shares its angle) or R (one entry a
// channel).
struct RotaryCache {
  const void* cos;  // null: not rotated
  const void* sin;
  DataType dtype;
  int64_t width;
  int64_t num_rows;
  int64_t batch_stride;  // 0 when shared by the batch
  int64_t head_stride;   // 0 when shared by the heads
  int64_t row_stride;
  const int64_t* position_ids;  // [B or 1, rows]; null: the row is s
  int64_t position_batch_stride;
};

// attn_mask, broadcast by zero strides. Its batch index is b % mask_batch (window masks).
struct AttentionMask {
  const void* data;  // null: absent
  DataType dtype;    // kBool: true = attend; else added to the scores
  int64_t batch_size;
  int64_t batch_stride;
  int64_t head_stride;
  int64_t row_stride;
  int64_t column_stride;  // 0 or 1
};

struct AttentionParams {
  DataType dtype;  // of query, key, value, past, present and output

  int64_t batch_size;
  int64_t seqlen_q;
  int64_t seqlen_kv;
  int64_t seqlen_past;
  int64_t seqlen_total;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t head_dim_v;
  int64_t rotary_dim;    // R, already resolved: 0 only when rotary is kNone
  int64_t num_segments;  // G; 1 without segment_ends

  StridedTensor query;        // [B, H, Sq, D]
  StridedTensor key;          // [B, Hkv, Skv, D]
  StridedTensor value;        // [B, Hkv, Skv, Dv]
  StridedTensor past_key;     // [B, Hkv, P or M, D]; null when absent
  StridedTensor past_value;   // [B, Hkv, P or M, Dv]
  StridedTensor output;       // [B, H, Sq, Dv]
  StridedTensor present_key;  // [B, Hkv, T, D]; null when not wanted; may alias past_key if static
  StridedTensor present_value;  // [B, Hkv, T, Dv]

  NormParameter q_norm_weight;
  NormParameter k_norm_weight;
  NormParameter q_norm_bias;
  NormParameter k_norm_bias;
  RotaryCache query_rotary;
  RotaryCache key_rotary;  // equal to query_rotary unless key_cos_cache was given
  AttentionMask mask;
  const float* head_scale;  // null: 1. element (b, h, s) at the strides below
  int64_t head_scale_batch_stride;
  int64_t head_scale_head_stride;
  int64_t head_scale_row_stride;
  const int64_t* kv_lengths;    // [B], null: all T rows are valid; clamped to [0, T] where read
  const int64_t* segment_ends;  // [G], null: one segment

  QkNorm qk_norm;
  NormAxis norm_axis;
  NormRounding norm_rounding;
  Rotary rotary;
  Causal causal;
  KvCache kv_cache;
  bool rotary_interleaved;
  bool normalize_key;
  float qk_norm_epsilon;
  float scale;
  float softcap;         // 0: off
  int64_t window_left;   // -1: unlimited
  int64_t window_right;  // -1: unlimited
};

}  // namespace qkexport
