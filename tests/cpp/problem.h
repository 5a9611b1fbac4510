// One attention with its tensors, and its exact answer in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "isas.h"
#include "qkexport/attention_params.h"

namespace testing {

using qkexport::AttentionParams;
using qkexport::DataType;
using qkexport::Status;
using qkexport::StridedTensor;

inline float bfloat16_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  __builtin_memcpy(&x, &wide, sizeof x);
  return x;
}

// Storage of any of the three types.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DataType type, int64_t size) : type_(type) {
    bytes_.resize(static_cast<size_t>(size) * (type == DataType::kFloat32 ? 4 : 2));
  }

  double get(int64_t i) const {
    if (type_ == DataType::kFloat32) return at<float>(i);
    if (type_ == DataType::kBFloat16) return bfloat16_to_float(at<uint16_t>(i));
    return half(at<uint16_t>(i));
  }

  // Rounds by dropping bits: any representable number will do as an input.
  void set(int64_t i, double x) {
    const float wide = static_cast<float>(x);
    uint32_t bits;
    __builtin_memcpy(&bits, &wide, sizeof bits);
    if (type_ == DataType::kFloat32) return put<float>(i, wide);
    if (type_ == DataType::kBFloat16) return put<uint16_t>(i, static_cast<uint16_t>(bits >> 16));
    put<uint16_t>(i, to_half(x));
  }

  void fill_normal(std::mt19937& random) {
    std::normal_distribution<double> draw;
    for (int64_t i = 0; i < size(); ++i) set(i, draw(random));
  }

  int64_t size() const {
    return static_cast<int64_t>(bytes_.size()) / (type_ == DataType::kFloat32 ? 4 : 2);
  }
  void* data() { return bytes_.data(); }
  DataType type() const { return type_; }

 private:
  template <typename T>
  T at(int64_t i) const {
    T x;
    __builtin_memcpy(&x, bytes_.data() + static_cast<size_t>(i) * sizeof x, sizeof x);
    return x;
  }
  template <typename T>
  void put(int64_t i, T x) {
    __builtin_memcpy(bytes_.data() + static_cast<size_t>(i) * sizeof x, &x, sizeof x);
  }
  static double half(uint16_t bits) {
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    const int exponent = (bits >> 10) & 31;
    const double mantissa = bits & 1023;
    if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
    return exponent == 0 ? sign * std::ldexp(mantissa, -24)
                         : sign * std::ldexp(1024.0 + mantissa, exponent - 25);
  }
  static uint16_t to_half(double x) {
    if (std::isnan(x)) return 0x7E00;
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double magnitude = std::abs(x);
    if (magnitude > 65504.0) return sign | 0x7C00;
    if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(magnitude * 0x1p24);
    int exponent = 0;
    const double fraction = std::frexp(magnitude, &exponent);
    const int mantissa = static_cast<int>(fraction * 2048.0) - 1024;
    return sign | static_cast<uint16_t>(((exponent + 14) << 10) + mantissa);
  }

  DataType type_ = DataType::kFloat32;
  std::vector<char> bytes_;
};

struct Sizes {
  int64_t batch_size = 1, seqlen_q = 1, seqlen_kv = 1, seqlen_past = 0;
  int64_t num_heads = 1, num_kv_heads = 1, head_dim = 8, head_dim_v = 8;
};

inline StridedTensor bnsh(void* data, int64_t heads, int64_t rows, int64_t width) {
  return {data, heads * rows * width, rows * width, width};
}

// RMS norm without gain, scale 1 / sqrt(head_dim), rank-4 tensors. Tests change `params`.
struct Problem {
  Problem(const Sizes& s, DataType type, unsigned seed = 1) : sizes(s) {
    const int64_t total = s.seqlen_past + s.seqlen_kv, pairs = s.batch_size * s.num_kv_heads;
    std::mt19937 random(seed);
    query = Tensor(type, s.batch_size * s.num_heads * s.seqlen_q * s.head_dim);
    key = Tensor(type, pairs * s.seqlen_kv * s.head_dim);
    value = Tensor(type, pairs * s.seqlen_kv * s.head_dim_v);
    past_key = Tensor(type, pairs * s.seqlen_past * s.head_dim);
    past_value = Tensor(type, pairs * s.seqlen_past * s.head_dim_v);
    output = Tensor(type, s.batch_size * s.num_heads * s.seqlen_q * s.head_dim_v);
    for (Tensor* t : {&query, &key, &value, &past_key, &past_value}) t->fill_normal(random);
    params = {};
    params.dtype = type;
    params.batch_size = s.batch_size;
    params.seqlen_q = s.seqlen_q;
    params.seqlen_kv = s.seqlen_kv;
    params.seqlen_past = s.seqlen_past;
    params.seqlen_total = total;
    params.num_heads = s.num_heads;
    params.num_kv_heads = s.num_kv_heads;
    params.head_dim = s.head_dim;
    params.head_dim_v = s.head_dim_v;
    params.num_segments = 1;
    params.query = bnsh(query.data(), s.num_heads, s.seqlen_q, s.head_dim);
    params.key = bnsh(key.data(), s.num_kv_heads, s.seqlen_kv, s.head_dim);
    params.value = bnsh(value.data(), s.num_kv_heads, s.seqlen_kv, s.head_dim_v);
    params.past_key = bnsh(past_key.data(), s.num_kv_heads, s.seqlen_past, s.head_dim);
    params.past_value = bnsh(past_value.data(), s.num_kv_heads, s.seqlen_past, s.head_dim_v);
    params.output = bnsh(output.data(), s.num_heads, s.seqlen_q, s.head_dim_v);
    params.qk_norm_epsilon = 1e-6f;
    params.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    params.normalize_key = true;
    params.window_left = params.window_right = -1;
  }
  Problem(const Problem&) = delete;

  Sizes sizes;
  Tensor query, key, value, past_key, past_value, output;
  AttentionParams params;
};

inline void run_serially(void*, int64_t tasks, void (*task)(void*, int64_t), void* data) {
  for (int64_t i = 0; i < tasks; ++i) task(data, i);
}

inline Status run(const qkexport::cpu::KernelTable& kernels, const AttentionParams& params,
                  int64_t workers = 2) {
  std::vector<char> workspace(qkexport::cpu::workspace_size(kernels, params, workers));
  return qkexport::cpu::run(kernels, params, workspace.data(), workspace.size(),
                            {nullptr, workers, run_serially});
}

// The exact answer. Knows what these tests use: rms norm, cached keys, causal, windows, lengths
// (concat), softcap, and masks [seqlen_q, seqlen_total] of bool or float32.
class Exact {
 public:
  explicit Exact(const Problem& p) : p_(p) {}

  std::vector<double> output() const {
    const Sizes& s = p_.sizes;
    std::vector<double> result;
    for (int64_t b = 0; b < s.batch_size; ++b) {
      for (int64_t h = 0; h < s.num_heads; ++h) {
        for (int64_t i = 0; i < s.seqlen_q; ++i) append_row(b, h, i, result);
      }
    }
    return result;
  }

  bool sees(int64_t b, int64_t i, int64_t j) const {
    const AttentionParams& a = p_.params;
    const int64_t valid = a.kv_lengths == nullptr ? a.seqlen_total : a.kv_lengths[b];
    const int64_t offset =
        a.causal == qkexport::Causal::kLowerRight ? valid - a.seqlen_q : a.seqlen_past;
    if (j >= valid) return false;
    if (a.mask.data != nullptr && a.mask.dtype == DataType::kBool) {
      if (!mask_at<uint8_t>(i, j)) return false;
    }
    if (a.causal != qkexport::Causal::kNone && j > i + offset) return false;
    if (a.window_left >= 0 && j < i + offset - a.window_left) return false;
    return a.window_right < 0 || j <= i + offset + a.window_right;
  }

 private:
  template <typename T>
  T mask_at(int64_t i, int64_t j) const {
    const auto& m = p_.params.mask;
    return static_cast<const T*>(m.data)[i * m.row_stride + j * m.column_stride];
  }

  double finished_score(int64_t i, int64_t j, double score) const {
    const AttentionParams& a = p_.params;
    if (a.softcap != 0.0f) score = a.softcap * std::tanh(score / a.softcap);
    const bool additive = a.mask.data != nullptr && a.mask.dtype == DataType::kFloat32;
    return additive ? score + double{mask_at<float>(i, j)} : score;
  }

  std::vector<double> normalized(const Tensor& t, int64_t row, bool norm) const {
    const int64_t n = p_.sizes.head_dim;
    std::vector<double> x(static_cast<size_t>(n));
    double squares = 0.0;
    for (int64_t d = 0; d < n; ++d) {
      x[d] = t.get(row * n + d);
      squares += x[d] * x[d];
    }
    const double factor =
        norm ? 1.0 / std::sqrt(squares / static_cast<double>(n) + p_.params.qk_norm_epsilon) : 1.0;
    for (double& y : x) y *= factor;
    return x;
  }

  std::vector<double> key_row(int64_t pair, int64_t j) const {
    const Sizes& s = p_.sizes;
    if (j < s.seqlen_past) return normalized(p_.past_key, pair * s.seqlen_past + j, false);
    return normalized(p_.key, pair * s.seqlen_kv + j - s.seqlen_past, p_.params.normalize_key);
  }

  double value_at(int64_t pair, int64_t j, int64_t c) const {
    const Sizes& s = p_.sizes;
    if (j < s.seqlen_past) {
      return p_.past_value.get((pair * s.seqlen_past + j) * s.head_dim_v + c);
    }
    return p_.value.get((pair * s.seqlen_kv + j - s.seqlen_past) * s.head_dim_v + c);
  }

  void append_row(int64_t b, int64_t h, int64_t i, std::vector<double>& result) const {
    const Sizes& s = p_.sizes;
    const int64_t pair = b * s.num_kv_heads + h / (s.num_heads / s.num_kv_heads);
    const auto q = normalized(p_.query, (b * s.num_heads + h) * s.seqlen_q + i, true);
    std::vector<double> o(static_cast<size_t>(s.head_dim_v));
    double top = -INFINITY, sum = 0.0;
    std::vector<double> scores;
    std::vector<int64_t> seen;
    for (int64_t j = 0; j < s.seqlen_past + s.seqlen_kv; ++j) {
      if (!sees(b, i, j)) continue;
      const auto k = key_row(pair, j);
      double score = 0.0;
      for (int64_t d = 0; d < s.head_dim; ++d) score += q[d] * k[d];
      score = finished_score(i, j, score * p_.params.scale);
      if (score == -INFINITY) continue;
      scores.push_back(score);
      seen.push_back(j);
      top = std::max(top, scores.back());
    }
    for (size_t n = 0; n < seen.size(); ++n) {
      const double weight = std::exp(scores[n] - top);
      sum += weight;
      for (int64_t c = 0; c < s.head_dim_v; ++c) o[c] += weight * value_at(pair, seen[n], c);
    }
    for (double x : o) result.push_back(seen.empty() ? 0.0 : x / sum);
  }

  const Problem& p_;
};

// Relative rounding of one stored number, times what the float32 arithmetic adds.
inline double tolerance(DataType type) {
  if (type == DataType::kFloat32) return 4e-6;
  return type == DataType::kFloat16 ? 1.2e-3 : 9e-3;
}

// The largest error over tolerance * (1 + |exact|); NaN counts as infinite.
inline double worst_error(const Tensor& got, const std::vector<double>& exact) {
  double worst = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(got.get(static_cast<int64_t>(i)) - exact[i]);
    const double relative = error / (tolerance(got.type()) * (1.0 + std::abs(exact[i])));
    if (!(relative <= worst)) worst = std::isnan(relative) ? INFINITY : relative;
  }
  return worst;
}

}  // namespace testing
