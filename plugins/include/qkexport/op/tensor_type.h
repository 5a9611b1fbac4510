// Element type and shape of one input; a dimension of -1 is not known yet and fits everything.
#pragma once

#include <cstdint>
#include <string>

#include "qkexport/op/shape.h"

namespace qkexport::op {

enum class ElementType : int32_t { kFloat32, kFloat16, kBFloat16, kBool, kInt64, kOther };

inline const char* name_of(ElementType type) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16", "bool", "int64", "another"};
  return kNames[static_cast<int>(type)];
}

constexpr int64_t kUnknown = -1;

struct TensorType {
  bool present = false;
  ElementType type = ElementType::kOther;
  bool has_shape = false;  // false: not even the rank is known
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  // Dimensions counted from the back: -1 is the last.
  int64_t from_back(int64_t axis) const { return shape[shape.size() + static_cast<size_t>(axis)]; }
};

inline std::string text(const Shape& shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    result += (i == 0 ? "" : ",") + (shape[i] < 0 ? "?" : std::to_string(shape[i]));
  }
  return result + "]";
}

inline std::string text(const TensorType& tensor) {
  return name_of(tensor.type) + text(tensor.shape);
}

inline bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }
inline int64_t first_known(int64_t a, int64_t b) { return a >= 0 ? a : b; }

inline bool fits(const Shape& shape, const Shape& target) {
  if (shape.size() != target.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (differ(shape[i], target[i])) return false;
  }
  return true;
}

inline bool broadcasts(const Shape& shape, const Shape& target) {
  if (shape.size() > target.size()) return false;
  const size_t missing = target.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1 && differ(shape[i], target[missing + i])) return false;
  }
  return true;
}

}  // namespace qkexport::op
