#include "oracle.h"

#include <algorithm>
#include <cmath>

#include "case_tensors.h"

namespace qkexport::cases {
namespace {

// Real: type of all sums. kRounds: whether the result of each operator is rounded to T.
template <class Real, bool kRounds>
class Evaluation {
 public:
  explicit Evaluation(const AttentionParams& params) : p_(params) {}

  OracleResult run() {
    OracleResult result;
    collect_keys();
    result.output.resize(p_.batch_size * p_.num_heads * p_.seqlen_q * p_.head_dim_v);
    for (int64_t b = 0; b < p_.batch_size; ++b) {
      for (int64_t h = 0; h < p_.num_heads; ++h) {
        for (int64_t i = 0; i < p_.seqlen_q; ++i) {
          const int64_t row = (b * p_.num_heads + h) * p_.seqlen_q + i;
          attend(b, h, i, &result.output[row * p_.head_dim_v]);
        }
      }
    }
    if (p_.present_key.data != nullptr) result.present_key = to_double(keys_);
    if (p_.present_value.data != nullptr) result.present_value = to_double(values_);
    return result;
  }

 private:
  using Row = std::vector<Real>;

  static std::vector<double> to_double(const std::vector<Real>& values) {
    return {values.begin(), values.end()};
  }

  Real round(Real value) const {
    return kRounds ? static_cast<Real>(round_to(p_.dtype, value)) : value;
  }

  Row read(const StridedTensor& t, int64_t b, int64_t h, int64_t s, int64_t channels) const {
    Row row(channels);
    const int64_t base = b * t.batch_stride + h * t.head_stride + s * t.row_stride;
    for (int64_t i = 0; i < channels; ++i) row[i] = load(t.data, p_.dtype, base + i);
    return row;
  }

  int64_t length(int64_t b) const {
    if (p_.kv_lengths == nullptr) return p_.seqlen_total;
    return std::clamp<int64_t>(p_.kv_lengths[b], 0, p_.seqlen_total);
  }

  // All T rows of keys (normalized and rotated) and values.
  void collect_keys() {
    const int64_t rows = p_.batch_size * p_.num_kv_heads * p_.seqlen_total;
    keys_.resize(rows * p_.head_dim);
    values_.resize(rows * p_.head_dim_v);
    for (int64_t b = 0; b < p_.batch_size; ++b) {
      for (int64_t h = 0; h < p_.num_kv_heads; ++h) {
        for (int64_t j = 0; j < p_.seqlen_total; ++j) collect(b, h, j);
      }
    }
  }

  void collect(int64_t b, int64_t h, int64_t j) {
    const bool is_static = p_.kv_cache == KvCache::kStatic;
    const int64_t begin = is_static ? length(b) - p_.seqlen_kv : p_.seqlen_past;
    const int64_t token = j - begin;
    const bool fresh = token >= 0 && token < p_.seqlen_kv;
    Row key =
        fresh ? read(p_.key, b, h, token, p_.head_dim) : read(p_.past_key, b, h, j, p_.head_dim);
    if (fresh && p_.normalize_key) {
      key = transform(p_.key, p_.num_kv_heads, p_.k_norm_weight, p_.k_norm_bias, p_.key_rotary, b,
                      h, token);
    }
    const Row value = fresh ? read(p_.value, b, h, token, p_.head_dim_v)
                            : read(p_.past_value, b, h, j, p_.head_dim_v);
    const int64_t row = (b * p_.num_kv_heads + h) * p_.seqlen_total + j;
    std::copy(key.begin(), key.end(), keys_.begin() + row * p_.head_dim);
    std::copy(value.begin(), value.end(), values_.begin() + row * p_.head_dim_v);
  }

  Row transform(const StridedTensor& t, int64_t heads, const NormParameter& weight,
                const NormParameter& bias, const RotaryCache& rotary, int64_t b, int64_t h,
                int64_t s) const {
    const auto turned = [&](int64_t head) {
      Row row = read(t, b, head, s, p_.head_dim);
      if (p_.rotary == Rotary::kBeforeNorm) rotate(row, rotary, b, head, s);
      return row;
    };
    Row x = turned(h);
    Row all;
    for (int64_t head = 0; head < heads; ++head) {
      if (p_.norm_axis == NormAxis::kHead && head != h) continue;
      const Row row = head == h ? x : turned(head);
      all.insert(all.end(), row.begin(), row.end());
    }
    normalize(x, all, weight, bias, h, s);
    if (p_.rotary == Rotary::kAfterNorm) rotate(x, rotary, b, h, s);
    return x;
  }

  void normalize(Row& x, const Row& all, const NormParameter& weight, const NormParameter& bias,
                 int64_t h, int64_t s) const {
    const Real count = static_cast<Real>(all.size());
    Real mean = 0;
    if (p_.qk_norm == QkNorm::kLayer) {
      for (Real value : all) mean += value;
      mean /= count;
    }
    Real squares = 0;
    for (Real value : all) squares += (value - mean) * (value - mean);
    const Real epsilon = p_.qk_norm_epsilon;
    const Real inverse = p_.qk_norm == QkNorm::kL2 ? 1 / std::max(std::sqrt(squares), epsilon)
                                                   : 1 / std::sqrt(squares / count + epsilon);
    int64_t segment = 0;
    if (p_.segment_ends != nullptr) {
      while (segment + 1 < p_.num_segments && p_.segment_ends[segment] <= s) ++segment;
    }
    for (int64_t i = 0; i < p_.head_dim; ++i) {
      Real y = (x[i] - mean) * inverse;
      if (weight.data != nullptr) {
        y *= load(weight.data, weight.dtype,
                  segment * weight.segment_stride + h * weight.head_stride + i);
      }
      if (bias.data != nullptr) {
        y += load(bias.data, bias.dtype, segment * bias.segment_stride + h * bias.head_stride + i);
      }
      x[i] = round(y);
    }
  }

  void rotate(Row& x, const RotaryCache& cache, int64_t b, int64_t h, int64_t s) const {
    int64_t row = s;
    if (cache.position_ids != nullptr) {
      row = cache.position_ids[b * cache.position_batch_stride + s];
      if (row < 0 || row >= cache.num_rows) {
        std::fill(x.begin(), x.end(), static_cast<Real>(NAN));
        return;
      }
    }
    const int64_t base = b * cache.batch_stride + h * cache.head_stride + row * cache.row_stride;
    const int64_t half = p_.rotary_dim / 2;
    const bool full = cache.width == p_.rotary_dim;
    const Row original = x;
    for (int64_t u = 0; u < half; ++u) {
      const int64_t i = p_.rotary_interleaved ? 2 * u : u;
      const int64_t j = p_.rotary_interleaved ? 2 * u + 1 : u + half;
      const auto angle = [&](const void* table, int64_t channel) {
        return static_cast<Real>(load(table, cache.dtype, base + (full ? channel : u)));
      };
      x[i] = round(original[i] * angle(cache.cos, i) - original[j] * angle(cache.sin, i));
      x[j] = round(original[j] * angle(cache.cos, j) + original[i] * angle(cache.sin, j));
    }
  }

  bool in_range(int64_t b, int64_t i, int64_t j) const {
    const int64_t upper_left = p_.kv_cache == KvCache::kStatic ? 0 : p_.seqlen_past;
    const int64_t offset = p_.causal == Causal::kLowerRight ? length(b) - p_.seqlen_q : upper_left;
    if (j >= length(b)) return false;
    if (p_.causal != Causal::kNone && j > i + offset) return false;
    if (p_.window_left >= 0 && j < i + offset - p_.window_left) return false;
    return p_.window_right < 0 || j <= i + offset + p_.window_right;
  }

  // What the mask adds; -infinity where it hides.
  Real mask_bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const AttentionMask& m = p_.mask;
    if (m.data == nullptr) return 0;
    const int64_t index = (b % m.batch_size) * m.batch_stride + h * m.head_stride +
                          i * m.row_stride + j * m.column_stride;
    if (m.dtype == DataType::kBool) {
      return static_cast<const uint8_t*>(m.data)[index] != 0 ? Real{0}
                                                             : -static_cast<Real>(INFINITY);
    }
    return load(m.data, m.dtype, index);
  }

  void attend(int64_t b, int64_t h, int64_t i, double* output) const {
    const int64_t kv_head = h / (p_.num_heads / p_.num_kv_heads);
    const Row q = transform(p_.query, p_.num_heads, p_.q_norm_weight, p_.q_norm_bias,
                            p_.query_rotary, b, h, i);
    std::vector<int64_t> seen;
    Row scores;
    for (int64_t j = 0; j < p_.seqlen_total; ++j) {
      if (!in_range(b, i, j)) continue;
      const Real bias = mask_bias(b, h, i, j);
      if (bias == -static_cast<Real>(INFINITY)) continue;
      seen.push_back(j);
      scores.push_back(score(q, b, h, kv_head, i, j, bias));
    }
    softmax(scores);
    for (int64_t c = 0; c < p_.head_dim_v; ++c) {
      Real sum = 0;
      for (std::size_t n = 0; n < seen.size(); ++n) {
        const int64_t row = (b * p_.num_kv_heads + kv_head) * p_.seqlen_total + seen[n];
        sum += scores[n] * values_[row * p_.head_dim_v + c];
      }
      output[c] = round(sum);
    }
  }

  Real score(const Row& q, int64_t b, int64_t h, int64_t kv_head, int64_t i, int64_t j,
             Real bias) const {
    const int64_t row = (b * p_.num_kv_heads + kv_head) * p_.seqlen_total + j;
    Real dot = 0;
    for (int64_t c = 0; c < p_.head_dim; ++c) dot += q[c] * keys_[row * p_.head_dim + c];
    Real scale = p_.scale;
    if (p_.head_scale != nullptr) {
      scale *= p_.head_scale[b * p_.head_scale_batch_stride + h * p_.head_scale_head_stride +
                             i * p_.head_scale_row_stride];
    }
    Real s = round(dot * scale);
    if (p_.softcap != 0.0f) s = round(p_.softcap * std::tanh(s / Real{p_.softcap}));
    return bias == 0 ? s : round(s + bias);
  }

  // In place; a row that saw nothing stays empty, and one of scores of -infinity weighs nothing.
  void softmax(Row& scores) const {
    Real largest = -static_cast<Real>(INFINITY);
    for (Real s : scores) largest = std::isnan(s) ? s : std::max(largest, s);
    if (largest == -static_cast<Real>(INFINITY)) {
      std::fill(scores.begin(), scores.end(), Real{0});
      return;
    }
    Real sum = 0;
    for (Real& s : scores) sum += s = std::exp(s - largest);
    for (Real& s : scores) s = round(s / sum);
  }

  const AttentionParams& p_;
  std::vector<Real> keys_;
  std::vector<Real> values_;
};

}  // namespace

OracleResult exact(const AttentionParams& params) {
  return Evaluation<double, false>(params).run();
}
OracleResult eager(const AttentionParams& params) { return Evaluation<float, true>(params).run(); }

}  // namespace qkexport::cases
