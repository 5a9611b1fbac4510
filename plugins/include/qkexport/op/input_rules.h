// Rules about which inputs may be present together, and of which types.
#pragma once

#include <string>

#include "qkexport/op/signature.h"

namespace qkexport::op {

inline std::string present_names(const Signature& s) {
  std::string names;
  for (int i = 0; i < kNumInputs; ++i) {
    if (s.inputs[i].present) names += (names.empty() ? "" : ", ") + std::string(kInputNames[i]);
  }
  return "inputs " + names;
}

inline void check_pair(const Signature& s, Input left, Input right) {
  if (s.has(left) == s.has(right)) return;
  const Input present = s.has(left) ? left : right;
  refuse(std::string("needs both of ") + kInputNames[left] + " and " + kInputNames[right],
         std::string("only ") + kInputNames[present]);
}

inline void check_presence(const Signature& s) {
  if (!s.has(kQuery) || !s.has(kKey) || !s.has(kValue)) {
    refuse("needs query, key and value", present_names(s));
  }
  check_pair(s, kCosCache, kSinCache);
  check_pair(s, kKeyCosCache, kKeySinCache);
  check_pair(s, kPastKey, kPastValue);
}

inline void check_companions(const Signature& s) {
  const bool rotates = s.spec.rotary != Rotary::kNone;
  if (rotates != s.has(kCosCache)) {
    refuse("needs cos_cache and sin_cache exactly when rotary is not 'none'",
           std::string(rotates ? "rotary" : "no rotary") + " and " + present_names(s));
  }
  for (const Input input : {kPositionIds, kKeyCosCache}) {
    if (s.has(input) && !rotates) {
      refuse(std::string("takes ") + kInputNames[input] + " only with rotary", "rotary 'none'");
    }
  }
  for (const Input input : {kKNormWeight, kKNormBias, kKeyCosCache}) {
    if (s.has(input) && !s.spec.normalize_key) {
      refuse(std::string("takes ") + kInputNames[input] + " only with normalize_key 1",
             "normalize_key 0", "such keys are used as they are.");
    }
  }
  if (s.spec.kv_cache == KvCache::kStatic && !(s.has(kPastKey) && s.has(kKvLengths))) {
    refuse("needs past_key, past_value and kv_lengths with a static cache", present_names(s));
  }
}

inline bool type_fits(Input input, ElementType type, ElementType tensor) {
  switch (input) {
    case kQuery:
    case kKey:
    case kValue:
    case kPastKey:
    case kPastValue:
      return type == tensor;
    case kPositionIds:
    case kKvLengths:
    case kSegmentEnds:
      return type == ElementType::kInt64;
    case kHeadScale:
      return type == ElementType::kFloat32;
    case kAttnMask:
      return type == ElementType::kBool || type == tensor || type == ElementType::kFloat32;
    default:
      return type == tensor || type == ElementType::kFloat32;
  }
}

inline std::string accepted_types(Input input, ElementType tensor) {
  std::string names;
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kBool, ElementType::kFloat16,
                                 ElementType::kFloat32, ElementType::kInt64}) {
    if (type_fits(input, type, tensor))
      names += (names.empty() ? "" : " or ") + std::string(name_of(type));
  }
  return names;
}

inline void check_types(const Signature& s) {
  const ElementType tensor = s.inputs[kQuery].type;
  const bool known = tensor == ElementType::kFloat32 || tensor == ElementType::kFloat16 ||
                     tensor == ElementType::kBFloat16;
  if (!known) refuse("query must be float32, float16 or bfloat16", name_of(tensor));
  for (int i = 0; i < kNumInputs; ++i) {
    const Input input = static_cast<Input>(i);
    if (!s.has(input) || type_fits(input, s.inputs[i].type, tensor)) continue;
    refuse(std::string(kInputNames[i]) + " must be " + accepted_types(input, tensor),
           name_of(s.inputs[i].type), std::string("query is ") + name_of(tensor) + ".");
  }
}

}  // namespace qkexport::op
