#include "formats.h"

namespace qkexport::trt {
namespace {

using op::ElementType;

bool is_tensor_type(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat16 ||
         type == ElementType::kBFloat16;
}

bool is_integer(int role) {
  return role == op::kPositionIds || role == op::kKvLengths || role == op::kSegmentEnds;
}

}  // namespace

int role_at(const op::InputPositions& positions, int num_inputs, int position) {
  if (position >= num_inputs) return op::kNumInputs;
  for (int role = 0; role < op::kNumInputs; ++role) {
    if (positions[role] == position) return role;
  }
  return op::kNumInputs;
}

bool has_tensor_type(int role) {
  return role <= op::kValue || role == op::kPastKey || role == op::kPastValue ||
         role == op::kNumInputs;
}

bool accepts(int role, ElementType type, ElementType tensor_type) {
  if (is_integer(role)) return type == ElementType::kInt64;
  if (role == op::kHeadScale) return type == ElementType::kFloat32;
  if (role == op::kAttnMask && type == ElementType::kBool) return true;
  if (!is_tensor_type(type)) return false;
  const bool matches = tensor_type == ElementType::kOther || type == tensor_type;
  return matches || (!has_tensor_type(role) && type == ElementType::kFloat32);
}

}  // namespace qkexport::trt
