// What every kernel of one run() receives, by value: the caller's parameters and what the plan
// decided on the host.
#pragma once

#include "qkexport/attention_params.h"

namespace qkexport::cuda {

// Keys or values as the attention kernel reads them: rows of the new tokens from `fresh`, all
// others from `cached`. Where everything stands in one place, `num_fresh` is 0.
struct KvSource {
  StridedTensor cached;
  StridedTensor fresh;
  int num_fresh;    // new rows; they begin at row fresh_begin(batch) of the sequence
  bool vectorized;  // every row starts 16-byte aligned and has whole 16-byte chunks
};

// Mean and inverse norm of a token over all its heads (norm_axis "hidden").
struct RowStatistics {
  float mean;
  float inverse;
};

// What a split knows of a row: the maximum that its weights are relative to and their sum, which is
// 0 where it saw no key. Kept apart, because next to a mask of the lowest float the logarithm of
// the sum is lost in rounding.
struct SplitState {
  float maximum;
  float sum;
};

struct KernelArguments {
  AttentionParams params;

  KvSource key;
  KvSource value;

  // Key prologue. Target of the transformed new keys: present_key, or [B, Hkv, Skv, D] in the
  // workspace; null where keys are read in place and no present is wanted.
  StridedTensor key_target;
  bool key_target_is_present;
  bool copies_past_key;    // present_key is wanted and does not alias past_key
  bool copies_past_value;  // the same for values
  bool copies_past;        // either: the prologue visits the rows of the past too
  bool key_copy_vectorized;
  bool key_target_vectorized;
  bool value_copy_vectorized;
  int num_key_tiles;

  // Norm of the largest key of each warp of the key prologue, [B, Hkv, num_key_tiles * warps];
  // null: scores are not bounded.
  float* key_norms;

  bool query_vectorized;
  bool output_vectorized;
  bool query_in_quads;  // norm and RoPE can take four channels at once
  bool key_in_quads;

  RowStatistics* query_statistics;  // [B, Sq], null unless norm_axis is hidden
  RowStatistics* key_statistics;    // [B, Skv]

  // Split keys: normalized partial outputs [S, B, H, Sq, Dv] and their state [S, B, H, Sq].
  float* partial_output;
  SplitState* partial_state;
  float exponent_factor;  // turns differences of maxima into exponents of two
  int num_splits;

  int heads_per_tile;  // 1, or H / Hkv: query heads of one kv head packed into the rows of a tile
  bool plain_scores;   // scores are scale * q.k with scale > 0 and nothing else before the mask
};

}  // namespace qkexport::cuda
