// Rules about RoPE: the rotary dim, the caches and the position ids.
#pragma once

#include <string>

#include "qkexport/op/signature.h"

namespace qkexport::op {

// The caches of the queries, or the keys' own.
struct CacheInputs {
  Input cos;
  Input sin;
  int64_t rows;
  int64_t num_heads;
};

inline void check_indexed_cache(const Signature& s, const Dims& dims, const CacheInputs& c) {
  const TensorType& cos = s.inputs[c.cos];
  if (!s.has(kPositionIds)) {
    refuse(std::string(kInputNames[c.cos]) + " of rank 2 needs position_ids", text(cos),
           "without position_ids a cache has one row a token.");
  }
  if (differ(dims.seqlen_q, c.rows)) {
    refuse("key_cos_cache of rank 2 needs Sq == Skv",
           std::to_string(dims.seqlen_q) + " and " + std::to_string(c.rows));
  }
}

inline void check_cache_of_tokens(const Signature& s, const Dims& dims, const CacheInputs& c) {
  const TensorType& cos = s.inputs[c.cos];
  Shape leading = {dims.batch_size, c.num_heads, c.rows};
  if (cos.rank() == 3) leading.erase(1);
  const Shape tokens(cos.shape.begin(), cos.shape.end() - 1);
  if (broadcasts(tokens, leading) && !differ(cos.from_back(-2), c.rows)) return;
  leading.push_back(kUnknown);
  refuse(std::string(kInputNames[c.cos]) + " must be " + text(leading), text(cos),
         "its batch and heads may also be 1.");
}

inline void check_caches(const Signature& s, const Dims& dims, const CacheInputs& c) {
  const TensorType &cos = s.inputs[c.cos], &sin = s.inputs[c.sin];
  const std::string name = kInputNames[c.cos];
  if (!cos.has_shape || !sin.has_shape) return;
  if (cos.type != sin.type || !fits(cos.shape, sin.shape)) {
    refuse(name + " and " + kInputNames[c.sin] + " must have one type and shape",
           text(cos) + " and " + text(sin));
  }
  if (cos.rank() < 2 || cos.rank() > 4) refuse(name + " must have rank 2 to 4", text(cos));
  if (cos.rank() == 2) {
    check_indexed_cache(s, dims, c);
  } else {
    check_cache_of_tokens(s, dims, c);
  }
  const int64_t width = cos.from_back(-1), half = dims.rotary_dim / 2;
  if (dims.rotary_dim >= 0 && differ(width, dims.rotary_dim) && differ(width, half)) {
    refuse(name + " must be " + std::to_string(half) + " or " + std::to_string(dims.rotary_dim) +
               " wide",
           text(cos));
  }
}

// Keys turn with the queries' caches when they have none of their own.
inline void check_shared_cache(const Signature& s, const Dims& dims) {
  if (differ(dims.seqlen_q, dims.seqlen_kv)) {
    refuse("needs key_cos_cache when query and key lengths differ",
           std::to_string(dims.seqlen_q) + " and " + std::to_string(dims.seqlen_kv));
  }
  const TensorType& cos = s.inputs[kCosCache];
  const int64_t heads = cos.has_shape && cos.rank() == 4 ? cos.shape[1] : 1;
  if (differ(heads, 1) && differ(heads, s.spec.num_kv_heads)) {
    refuse("needs key_cos_cache when cos_cache has an entry for each query head",
           text(cos) + " for " + std::to_string(s.spec.num_kv_heads) + " key/value heads");
  }
}

inline bool is_indexed(const Signature& s, Input cos) {
  return s.has(cos) && (!s.inputs[cos].has_shape || s.inputs[cos].rank() == 2);
}

inline void check_position_ids(const Signature& s, const Dims& dims) {
  if (!s.has(kPositionIds)) return;
  const TensorType& positions = s.inputs[kPositionIds];
  const Shape target = {dims.batch_size, dims.seqlen_q};
  const bool one_a_token =
      !positions.has_shape || (positions.rank() == 2 && !differ(positions.shape[1], target[1]));
  if (!one_a_token || !broadcasts(positions.shape, target)) {
    refuse("position_ids must be " + text(target), text(positions), "its batch may also be 1.");
  }
  if (!is_indexed(s, kCosCache) && !is_indexed(s, kKeyCosCache)) {
    refuse("position_ids needs a cos_cache of rank 2", text(s.inputs[kCosCache]));
  }
}

inline void check_rotary(const Signature& s, const Dims& dims) {
  if (s.spec.rotary == Rotary::kNone) return;
  if (dims.rotary_dim >= 0 && dims.rotary_dim % 2 != 0) {
    refuse("rotary_dim must be even", std::to_string(dims.rotary_dim));
  }
  if (dims.head_dim >= 0 && s.spec.rotary_dim > dims.head_dim) {
    refuse("rotary_dim must not exceed head_dim " + std::to_string(dims.head_dim),
           std::to_string(s.spec.rotary_dim));
  }
  check_caches(s, dims, {kCosCache, kSinCache, dims.seqlen_q, s.spec.num_heads});
  if (s.has(kKeyCosCache)) {
    check_caches(s, dims, {kKeyCosCache, kKeySinCache, dims.seqlen_kv, s.spec.num_kv_heads});
  } else if (s.spec.normalize_key) {
    check_shared_cache(s, dims);
  }
  check_position_ids(s, dims);
}

}  // namespace qkexport::op
