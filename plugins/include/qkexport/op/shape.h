// Dimensions of a tensor, kept in place: a shape is made for every call of a kernel, where nothing
// may be allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "qkexport/op/refusal.h"

namespace qkexport::op {

// As much of std::vector<int64_t> as the rules need, for up to kMaxRank dimensions.
class Shape {
 public:
  static constexpr size_t kMaxRank = 8;  // TensorRT's own limit; the contract needs 4

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  Shape(const int64_t* first, const int64_t* last) { assign(first, last); }

  void assign(const int64_t* first, const int64_t* last) {
    resize(static_cast<size_t>(last - first));
    std::copy(first, last, sizes_);
  }
  // Throws Refusal beyond kMaxRank. New dimensions are 0.
  void resize(size_t rank) {
    if (rank > kMaxRank) refuse("takes tensors of up to 8 dimensions", std::to_string(rank));
    for (size_t i = rank_; i < rank; ++i) sizes_[i] = 0;
    rank_ = rank;
  }
  void push_back(int64_t size) {
    resize(rank_ + 1);
    sizes_[rank_ - 1] = size;
  }
  void push_front(int64_t size) {
    resize(rank_ + 1);
    std::copy_backward(sizes_, sizes_ + rank_ - 1, sizes_ + rank_);
    sizes_[0] = size;
  }
  void erase(size_t axis) {
    std::copy(sizes_ + axis + 1, sizes_ + rank_, sizes_ + axis);
    --rank_;
  }

  size_t size() const { return rank_; }
  int64_t* data() { return sizes_; }
  const int64_t* data() const { return sizes_; }
  int64_t& operator[](size_t axis) { return sizes_[axis]; }
  int64_t operator[](size_t axis) const { return sizes_[axis]; }
  int64_t* begin() { return sizes_; }
  int64_t* end() { return sizes_ + rank_; }
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + rank_; }

 private:
  size_t rank_ = 0;
  int64_t sizes_[kMaxRank] = {};
};

}  // namespace qkexport::op
