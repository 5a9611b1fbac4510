// The attributes of a node as one value, read and checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "qkexport/attention_params.h"
#include "qkexport/op/refusal.h"

namespace qkexport::op {

struct AttentionSpec {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t rotary_dim;  // 0: all of head_dim
  int64_t window_left;
  int64_t window_right;
  QkNorm qk_norm;
  NormAxis norm_axis;
  NormRounding norm_rounding;
  Rotary rotary;
  Causal causal;
  KvCache kv_cache;
  bool normalize_key;
  bool rotary_interleaved;
  float qk_norm_epsilon;
  float scale;
  float softcap;
};

// How an adapter reads attributes. Each answers false where the node has none of that name.
class AttributeReader {
 public:
  virtual ~AttributeReader() = default;
  virtual bool read_int(const char* name, int64_t& value) const = 0;
  virtual bool read_float(const char* name, float& value) const = 0;
  virtual bool read_string(const char* name, std::string& value) const = 0;
};

inline std::string subject(const char* name) { return std::string("attribute ") + name + " "; }

[[noreturn]] inline void refuse_missing(const char* name) {
  refuse("needs every attribute written out", std::string("none for ") + name,
         "no attribute has an implied default.");
}

inline int64_t read_int(const AttributeReader& reader, const char* name) {
  int64_t value = 0;
  if (!reader.read_int(name, value)) refuse_missing(name);
  // TensorRT narrows INT attributes to 32 bits; a wider value would mean two things.
  if (value < -INT32_MAX || value > INT32_MAX) {
    refuse(subject(name) + "must fit in 32 bits", std::to_string(value));
  }
  return value;
}

inline int64_t read_at_least(const AttributeReader& reader, const char* name, int64_t lowest) {
  const int64_t value = read_int(reader, name);
  if (value < lowest) {
    refuse(subject(name) + "must be at least " + std::to_string(lowest), std::to_string(value));
  }
  return value;
}

inline bool read_bool(const AttributeReader& reader, const char* name) {
  const int64_t value = read_int(reader, name);
  if (value != 0 && value != 1) refuse(subject(name) + "must be 0 or 1", std::to_string(value));
  return value == 1;
}

inline float read_float(const AttributeReader& reader, const char* name) {
  float value = 0.0f;
  if (!reader.read_float(name, value)) refuse_missing(name);
  if (!std::isfinite(value)) refuse(subject(name) + "must be finite", std::to_string(value));
  return value;
}

inline float read_not_negative(const AttributeReader& reader, const char* name) {
  const float value = read_float(reader, name);
  if (value < 0.0f) refuse(subject(name) + "must not be negative", std::to_string(value));
  return value;
}

// The enumerator whose spelling the attribute has; spellings stand in the order of the enum.
template <typename Enum, size_t kCount>
Enum read_enum(const AttributeReader& reader, const char* name,
               const char* const (&spellings)[kCount]) {
  std::string value;
  if (!reader.read_string(name, value)) refuse_missing(name);
  std::string accepted;
  for (size_t i = 0; i < kCount; ++i) {
    if (value == spellings[i]) return static_cast<Enum>(i);
    accepted += (i == 0 ? "'" : ", '") + std::string(spellings[i]) + "'";
  }
  refuse(subject(name) + "is not a known value", "'" + value + "'", "accepted: " + accepted + ".");
}

inline void check_spelling(const AttributeReader& reader, const char* name, const char* expected) {
  std::string value;
  if (reader.read_string(name, value) && value != expected) {
    refuse(subject(name) + "must be '" + expected + "'", "'" + value + "'",
           "this is operator version 1.");
  }
}

inline AttentionSpec read_spec(const AttributeReader& reader) {
  AttentionSpec spec = {};
  spec.num_heads = read_at_least(reader, "num_heads", 1);
  spec.num_kv_heads = read_at_least(reader, "num_kv_heads", 1);
  if (spec.num_heads % spec.num_kv_heads != 0) {
    refuse("num_heads must be a multiple of num_kv_heads",
           std::to_string(spec.num_heads) + " and " + std::to_string(spec.num_kv_heads),
           "query head h reads key/value head h // (num_heads / num_kv_heads).");
  }
  spec.qk_norm = read_enum<QkNorm>(reader, "qk_norm", {"rms", "layer", "l2"});
  spec.norm_axis = read_enum<NormAxis>(reader, "norm_axis", {"head", "hidden"});
  spec.norm_rounding =
      read_enum<NormRounding>(reader, "norm_rounding", {"after_weight", "before_weight"});
  spec.rotary = read_enum<Rotary>(reader, "rotary", {"none", "after_norm", "before_norm"});
  spec.causal = read_enum<Causal>(reader, "causal", {"none", "upper_left", "lower_right"});
  spec.kv_cache = read_enum<KvCache>(reader, "kv_cache", {"concat", "static"});
  spec.normalize_key = read_bool(reader, "normalize_key");
  spec.rotary_interleaved = read_bool(reader, "rotary_interleaved");
  spec.rotary_dim = read_at_least(reader, "rotary_dim", 0);
  if (spec.rotary_dim % 2 != 0) {
    refuse("attribute rotary_dim must be even", std::to_string(spec.rotary_dim));
  }
  spec.window_left = read_at_least(reader, "window_left", -1);
  spec.window_right = read_at_least(reader, "window_right", -1);
  spec.qk_norm_epsilon = read_not_negative(reader, "qk_norm_epsilon");
  spec.scale = read_float(reader, "scale");
  spec.softcap = read_not_negative(reader, "softcap");
  check_spelling(reader, "plugin_version", "1");
  check_spelling(reader, "plugin_namespace", "");
  return spec;
}

}  // namespace qkexport::op
