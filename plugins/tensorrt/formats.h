// Which element types the plugin accepts at which position.
#pragma once

#include "qkexport/op/roles.h"
#include "qkexport/op/tensor_type.h"

namespace qkexport::trt {

// What the plugin accepts, for the message of a refusal.
constexpr const char* kTypeMatrix =
    "query, key, value, past and outputs: one of float32, float16, bfloat16; gains, biases and "
    "rotary caches: the same or float32; attn_mask: bool, the same or float32; head_scale: "
    "float32; position_ids, kv_lengths, segment_ends: int64; all row-major linear.";

// The role of a tensor: an op::Input, or kNumInputs for an output.
int role_at(const op::InputPositions& positions, int num_inputs, int position);

// Whether an input of this role may have `type` beside tensors of type `tensor_type` (the type of
// query; kOther while it is not known).
bool accepts(int role, op::ElementType type, op::ElementType tensor_type);

// Whether query, key, value, past_key, past_value or an output: what shares the one tensor type.
bool has_tensor_type(int role);

}  // namespace qkexport::trt
