// Which of the operator's inputs and outputs stands at which position of a node.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "qkexport/op/refusal.h"

namespace qkexport::op {

enum Input : int {
  kQuery,
  kKey,
  kValue,
  kQNormWeight,
  kKNormWeight,
  kQNormBias,
  kKNormBias,
  kCosCache,
  kSinCache,
  kPositionIds,
  kAttnMask,
  kHeadScale,
  kPastKey,
  kPastValue,
  kKvLengths,
  kSegmentEnds,
  kKeyCosCache,
  kKeySinCache,
  kNumInputs
};

constexpr const char* kInputNames[kNumInputs] = {
    "query",       "key",        "value",      "q_norm_weight", "k_norm_weight", "q_norm_bias",
    "k_norm_bias", "cos_cache",  "sin_cache",  "position_ids",  "attn_mask",     "head_scale",
    "past_key",    "past_value", "kv_lengths", "segment_ends",  "key_cos_cache", "key_sin_cache"};

enum Output : int { kOutput, kPresentKey, kPresentValue, kNumOutputs };
constexpr const char* kOutputNames[kNumOutputs] = {"output", "present_key", "present_value"};

constexpr int kAbsent = -1;

// The position of each input on the node, or kAbsent.
using InputPositions = std::array<int, kNumInputs>;

inline int role_index(const std::string& role, const char* const* names, int count) {
  for (int i = 0; i < count; ++i) {
    if (role == names[i]) return i;
  }
  return kAbsent;
}

// Positional spelling: input i stands at position i, if the node has that many.
inline InputPositions positional_inputs(size_t node_inputs) {
  if (node_inputs > kNumInputs) {
    refuse("takes at most 18 inputs", std::to_string(node_inputs));
  }
  InputPositions positions;
  for (int i = 0; i < kNumInputs; ++i) {
    positions[i] = i < static_cast<int>(node_inputs) ? i : kAbsent;
  }
  return positions;
}

// How many inputs `roles` names.
inline size_t role_count(const std::string& roles) {
  return roles.empty() ? 0 : 1 + static_cast<size_t>(std::count(roles.begin(), roles.end(), ','));
}

[[noreturn]] inline void refuse_role_count(size_t named, size_t node_inputs) {
  refuse("input_roles must name as many inputs as the node has",
         std::to_string(named) + " for " + std::to_string(node_inputs));
}

// Packed spelling: `roles` names the inputs that are really passed, comma-separated.
inline InputPositions input_positions(const std::string& roles, size_t node_inputs) {
  if (roles.empty()) return positional_inputs(node_inputs);
  InputPositions positions;
  positions.fill(kAbsent);
  size_t begin = 0, count = 0;
  while (begin <= roles.size()) {
    const size_t comma = roles.find(',', begin);
    const size_t end = comma == std::string::npos ? roles.size() : comma;
    const std::string role = roles.substr(begin, end - begin);
    const int index = role_index(role, kInputNames, kNumInputs);
    if (index == kAbsent) refuse("input_roles must name inputs of the operator", "'" + role + "'");
    if (positions[index] != kAbsent) {
      refuse("input_roles must name each input once", "'" + role + "' twice");
    }
    positions[index] = static_cast<int>(count++);
    begin = end + 1;
  }
  if (count != node_inputs) refuse_role_count(count, node_inputs);
  return positions;
}

// Outputs come as `output` alone or as all three, so both spellings put them at the same places.
inline void check_output_roles(const std::string& roles, size_t node_outputs) {
  if (node_outputs != 1 && node_outputs != kNumOutputs) {
    refuse("outputs must be output alone or with both presents", std::to_string(node_outputs));
  }
  const char* expected = node_outputs == 1 ? "output" : "output,present_key,present_value";
  if (!roles.empty() && roles != expected) {
    refuse(std::string("output_roles must be '' or '") + expected + "'", "'" + roles + "'");
  }
}

}  // namespace qkexport::op
