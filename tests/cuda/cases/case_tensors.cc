#include "case_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "cuda_emulation/numbers.h"

namespace qkexport::cases {
namespace {

using Draw = std::function<double(int64_t channel)>;

class Builder {
 public:
  explicit Builder(const AttentionCase& c) : c_(c), random_(c.seed) {}

  CaseTensors build() {
    fill_scalars();
    make_inputs();
    make_norms();
    make_rotary();
    make_mask();
    make_scale();
    make_cache();
    make_outputs();
    return std::move(tensors_);
  }

 private:
  AttentionParams& p() { return tensors_.params; }

  double normal() { return std::normal_distribution<double>(0.0, 1.0)(random_); }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  void fill_scalars() {
    p().dtype = c_.dtype;
    p().batch_size = c_.batch_size;
    p().seqlen_q = c_.seqlen_q;
    p().seqlen_kv = c_.seqlen_kv;
    p().seqlen_past = c_.cache_rows > 0 ? 0 : c_.seqlen_past;
    p().seqlen_total = c_.cache_rows > 0 ? c_.cache_rows : c_.seqlen_past + c_.seqlen_kv;
    p().num_heads = c_.num_heads;
    p().num_kv_heads = c_.num_kv_heads;
    p().head_dim = c_.head_dim;
    p().head_dim_v = c_.head_dim_v;
    p().rotary_dim = c_.rotary == Rotary::kNone ? 0 : c_.rotary_dim;
    p().num_segments = c_.num_segments;
    p().qk_norm = c_.qk_norm;
    p().norm_axis = c_.norm_axis;
    p().norm_rounding = NormRounding::kAfterWeight;
    p().rotary = c_.rotary;
    p().causal = c_.causal;
    p().kv_cache = c_.cache_rows > 0 ? KvCache::kStatic : KvCache::kConcat;
    p().rotary_interleaved = c_.interleaved;
    p().normalize_key = c_.normalize_key;
    p().qk_norm_epsilon = c_.qk_norm == QkNorm::kL2 ? 1e-12f : 1e-6f;
    p().scale = c_.scale;
    p().softcap = c_.softcap;
    p().window_left = c_.window_left;
    p().window_right = c_.window_right;
  }

  // A buffer of `count` elements whose pointer goes to `slot` (and its element 0 to data + lead).
  void* allocate(int64_t count, int64_t element_bytes, const void* slot, bool is_output = false) {
    Buffer buffer;
    const int64_t lead = c_.misalignment * element_bytes;
    buffer.lead = static_cast<std::size_t>(lead);
    buffer.bytes = static_cast<std::size_t>(count * element_bytes + lead);
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, std::max<std::size_t>(buffer.bytes, 1)) != 0) std::abort();
    std::memset(memory, 0xff, buffer.bytes);
    buffer.data.reset(static_cast<unsigned char*>(memory));
    buffer.is_output = is_output;
    void* start = buffer.data.get() + lead;
    tensors_.buffers.push_back(std::move(buffer));
    point(slot, start);
    return start;
  }

  // Makes one more pointer of the parameters point at the latest buffer.
  void point(const void* slot, void* start) {
    const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(slot) -
                                                 reinterpret_cast<unsigned char*>(&p()));
    tensors_.buffers.back().slots.push_back(offset);
    std::memcpy(reinterpret_cast<unsigned char*>(&p()) + offset, &start, sizeof start);
  }

  // A [batch, heads, rows, channels] tensor in the layout of the case; absent where it is empty.
  void make_tensor(StridedTensor& t, int64_t heads, int64_t rows, int64_t channels,
                   bool heads_first, const Draw& draw, bool is_output = false) {
    const int64_t row = channels + c_.row_padding;
    t = {nullptr, heads * rows * row, heads_first ? rows * row : row,
         heads_first ? row : heads * row};
    if (!heads_first) t.batch_stride = rows * heads * row;
    if (c_.batch_size * heads * rows == 0) return;
    const int64_t last = (c_.batch_size - 1) * t.batch_stride + (heads - 1) * t.head_stride +
                         (rows - 1) * t.row_stride + channels;
    void* data = allocate(last, size_of(c_.dtype), &t.data, is_output);
    if (is_output) return;
    for (int64_t b = 0; b < c_.batch_size; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t s = 0; s < rows; ++s) {
          fill_row(data, b * t.batch_stride + h * t.head_stride + s * t.row_stride, channels, draw,
                   s);
        }
      }
    }
  }

  void fill_row(void* data, int64_t base, int64_t channels, const Draw& draw, int64_t row) {
    const bool zero = c_.fill == Fill::kZeroRows && row % 5 == 2;
    const bool bad = c_.fill == Fill::kNonfiniteRows && row % 37 == 11;
    for (int64_t i = 0; i < channels; ++i) {
      double value = zero ? 0.0 : draw(i);
      if (bad && i == row % channels) value = row % 2 == 0 ? NAN : INFINITY;
      store(data, c_.dtype, base + i, value);
    }
  }

  // Of tensors that are normalized. Keys that are not are drawn as what a norm gives: scores in the
  // thousands would leave every result to the roundings of the queries.
  double amplitude() const {
    if (c_.fill == Fill::kLarge) return 300.0;
    return c_.fill == Fill::kTiny ? 1e-3 : 1.0;
  }

  void make_inputs() {
    const Draw draw_value = [this](int64_t) { return normal(); };
    const Draw draw = [this](int64_t channel) {
      const double common = channel % 3 == 0 ? -1.0 : 1.0;
      return c_.fill == Fill::kParallel ? common + 0.02 * normal() : amplitude() * normal();
    };
    const Draw& draw_key = c_.normalize_key ? draw : draw_value;
    make_tensor(p().query, c_.num_heads, c_.seqlen_q, c_.head_dim, c_.heads_first, draw);
    make_tensor(p().key, c_.num_kv_heads, c_.seqlen_kv, c_.head_dim, c_.heads_first, draw_key);
    make_tensor(p().value, c_.num_kv_heads, c_.seqlen_kv, c_.head_dim_v, c_.heads_first,
                draw_value);
  }

  DataType side_type() const { return c_.float_gains ? DataType::kFloat32 : c_.dtype; }

  void make_gain(NormParameter& gain, int64_t heads, double around) {
    const bool per_head = c_.gain == GainShape::kPerHead || c_.norm_axis == NormAxis::kHidden;
    const int64_t segment = per_head ? heads * c_.head_dim : c_.head_dim;
    gain = {nullptr, side_type(), segment, per_head ? c_.head_dim : 0};
    const int64_t count = c_.num_segments * segment;
    void* data = allocate(count, size_of(side_type()), &gain.data);
    for (int64_t i = 0; i < count; ++i) store(data, side_type(), i, around + 0.3 * normal());
  }

  void make_norms() {
    p().q_norm_weight.dtype = p().k_norm_weight.dtype = side_type();
    if (c_.gain != GainShape::kNone) {
      make_gain(p().q_norm_weight, c_.num_heads, 1.0);
      make_gain(p().k_norm_weight, c_.num_kv_heads, 1.0);
    }
    if (c_.bias) {
      make_gain(p().q_norm_bias, c_.num_heads, 0.0);
      make_gain(p().k_norm_bias, c_.num_kv_heads, 0.0);
    }
    if (c_.num_segments == 1) return;
    void* ends = allocate(c_.num_segments, 8, &p().segment_ends);
    // Now and then the last segment ends early: later tokens belong to it all the same.
    const int64_t covered = c_.seed % 3 == 0 ? c_.seqlen_q / 2 : c_.seqlen_q;
    for (int64_t g = 0; g < c_.num_segments; ++g) {
      static_cast<int64_t*>(ends)[g] = covered * (g + 1) / c_.num_segments;
    }
  }

  void make_cache_tables(RotaryCache& cache, int64_t heads, int64_t rows) {
    const int64_t width = c_.full_width ? c_.rotary_dim : c_.rotary_dim / 2;
    const int64_t table_rows = c_.position_ids ? rows + 9 : rows;
    const bool batched = !c_.position_ids && c_.batch_size > 1;
    const int64_t table_heads = c_.rotary_per_head && !c_.position_ids ? heads : 1;
    cache.dtype = side_type();
    cache.width = width;
    cache.num_rows = table_rows;
    cache.row_stride = width;
    cache.head_stride = table_heads > 1 ? table_rows * width : 0;
    cache.batch_stride = batched ? table_heads * table_rows * width : 0;
    const int64_t count = (batched ? c_.batch_size : 1) * table_heads * table_rows * width;
    void* cos = allocate(std::max<int64_t>(count, 1), size_of(side_type()), &cache.cos);
    std::vector<double> angles(static_cast<std::size_t>(count));
    for (double& angle : angles) angle = uniform(-3.1, 3.1);
    for (int64_t i = 0; i < count; ++i) store(cos, side_type(), i, std::cos(angles[i]));
    void* sin = allocate(std::max<int64_t>(count, 1), size_of(side_type()), &cache.sin);
    for (int64_t i = 0; i < count; ++i) store(sin, side_type(), i, std::sin(angles[i]));
    if (c_.position_ids && rows > 0) make_positions(cache, rows, table_rows);
  }

  void make_positions(RotaryCache& cache, int64_t rows, int64_t table_rows) {
    const int64_t batches = c_.batch_size > 1 && c_.seed % 2 == 0 ? c_.batch_size : 1;
    cache.position_batch_stride = batches > 1 ? rows : 0;
    void* ids = allocate(batches * rows, 8, &cache.position_ids);
    for (int64_t i = 0; i < batches * rows; ++i) {
      static_cast<int64_t*>(ids)[i] = integer(0, table_rows - 1);
    }
    if (c_.invalid_position) static_cast<int64_t*>(ids)[rows / 2] = table_rows;
  }

  void make_rotary() {
    if (c_.rotary == Rotary::kNone) return;
    make_cache_tables(p().query_rotary, c_.num_heads, c_.seqlen_q);
    const bool shared = !c_.separate_key_rotary && c_.seqlen_q == c_.seqlen_kv &&
                        (!c_.rotary_per_head || c_.num_heads == c_.num_kv_heads);
    if (!shared) {
      make_cache_tables(p().key_rotary, c_.num_kv_heads, c_.seqlen_kv);
      return;
    }
    // The same buffers serve both sides; their pointers are found by address.
    p().key_rotary = p().query_rotary;
    share(&p().query_rotary.cos, &p().key_rotary.cos);
    share(&p().query_rotary.sin, &p().key_rotary.sin);
    if (p().query_rotary.position_ids != nullptr) {
      share(&p().query_rotary.position_ids, &p().key_rotary.position_ids);
    }
  }

  std::size_t offset_of(const void* slot) {
    return static_cast<std::size_t>(static_cast<const unsigned char*>(slot) -
                                    reinterpret_cast<unsigned char*>(&p()));
  }

  void share(const void* owner, const void* other) {
    for (Buffer& buffer : tensors_.buffers) {
      if (std::count(buffer.slots.begin(), buffer.slots.end(), offset_of(owner)) > 0) {
        buffer.slots.push_back(offset_of(other));
        return;
      }
    }
  }

  static double lowest(DataType dtype) {
    return dtype == DataType::kFloat16    ? -65504.0
           : dtype == DataType::kBFloat16 ? -0x1.fep127
                                          : -std::numeric_limits<float>::max();
  }

  void make_mask() {
    AttentionMask& m = p().mask;
    m.dtype = c_.mask_dtype;
    m.batch_size = 1;
    if (c_.mask == MaskShape::kNone || p().seqlen_total == 0 || c_.seqlen_q == 0) return;
    const bool whole_rows = c_.mask == MaskShape::kWholeRows;
    const int64_t columns = whole_rows ? 1 : p().seqlen_total;
    const bool by_batch = c_.mask == MaskShape::kFull || c_.mask == MaskShape::kPerBatch ||
                          c_.mask == MaskShape::kColumns || whole_rows;
    const bool window = c_.mask == MaskShape::kWindowBatch && c_.batch_size % 2 == 0;
    const int64_t batches = by_batch ? c_.batch_size : window ? 2 : 1;
    const int64_t heads =
        c_.mask == MaskShape::kFull || c_.mask == MaskShape::kPerHead ? c_.num_heads : 1;
    const int64_t rows = c_.mask == MaskShape::kColumns ? 1 : c_.seqlen_q;
    m.batch_size = batches;
    m.column_stride = whole_rows ? 0 : 1;
    m.row_stride = rows > 1 ? columns : 0;
    m.head_stride = heads > 1 ? rows * columns : 0;
    m.batch_stride = batches > 1 ? heads * rows * columns : 0;
    const int64_t count = batches * heads * rows * columns;
    void* data = allocate(count, size_of(m.dtype), &m.data);
    for (int64_t i = 0; i < count; ++i) {
      const bool hidden = uniform(0.0, 1.0) < 0.3;
      if (m.dtype == DataType::kBool) {
        static_cast<uint8_t*>(data)[i] = hidden ? 0 : 1;
      } else {
        // Rows of nothing but the lowest number are averages; beside others it hides.
        const bool row_is_low = i / columns % 5 == 3;
        const bool low = row_is_low || uniform(0.0, 1.0) < 0.1;
        store(data, m.dtype, i, hidden ? -INFINITY : low ? lowest(m.dtype) : normal());
      }
    }
  }

  void make_scale() {
    if (c_.head_scale == ScaleShape::kNone) return;
    const bool rows = c_.head_scale == ScaleShape::kPerRow;
    const bool heads = c_.head_scale != ScaleShape::kSingle;
    const int64_t count =
        std::max<int64_t>(1, (heads ? c_.num_heads : 1) * (rows ? c_.batch_size * c_.seqlen_q : 1));
    p().head_scale_row_stride = rows ? 1 : 0;
    p().head_scale_head_stride = rows ? c_.seqlen_q : heads ? 1 : 0;
    p().head_scale_batch_stride = rows ? c_.num_heads * c_.seqlen_q : 0;
    void* data = allocate(count, 4, &p().head_scale);
    for (int64_t i = 0; i < count; ++i) static_cast<float*>(data)[i] = static_cast<float>(normal());
  }

  void make_cache() {
    const int64_t rows = c_.cache_rows > 0 ? c_.cache_rows : c_.seqlen_past;
    if (rows > 0) {
      const Draw draw = [this](int64_t) { return normal(); };
      const bool in_place = c_.presents == Presents::kAliased && c_.cache_rows > 0;
      make_tensor(p().past_key, c_.num_kv_heads, rows, c_.head_dim, true, draw);
      if (in_place && p().past_key.data != nullptr) alias(p().past_key, p().present_key);
      make_tensor(p().past_value, c_.num_kv_heads, rows, c_.head_dim_v, true, draw);
      if (in_place && p().past_value.data != nullptr) alias(p().past_value, p().present_value);
    }
    if (!c_.kv_lengths && c_.cache_rows == 0) return;
    void* lengths = allocate(std::max<int64_t>(c_.batch_size, 1), 8, &p().kv_lengths);
    for (int64_t b = 0; b < c_.batch_size; ++b) {
      // Of a static cache mostly enough for the new tokens, else the first of them have no row.
      const bool any = c_.cache_rows == 0 || (c_.seed % 4 == 0 && !c_.full_cache);
      const int64_t enough = c_.full_cache ? p().seqlen_total : c_.seqlen_kv;
      static_cast<int64_t*>(lengths)[b] =
          any ? integer(0, p().seqlen_total + 3) : integer(enough, p().seqlen_total);
    }
  }

  void alias(const StridedTensor& past, StridedTensor& present) {
    present = past;
    point(&present.data, past.data);
    tensors_.buffers.back().is_output = true;
  }

  void make_outputs() {
    make_tensor(p().output, c_.num_heads, c_.seqlen_q, c_.head_dim_v, c_.heads_first, {}, true);
    if (c_.presents == Presents::kNone || p().present_key.data != nullptr) return;
    make_tensor(p().present_key, c_.num_kv_heads, p().seqlen_total, c_.head_dim, true, {}, true);
    make_tensor(p().present_value, c_.num_kv_heads, p().seqlen_total, c_.head_dim_v, true, {},
                true);
  }

  const AttentionCase& c_;
  std::mt19937_64 random_;
  CaseTensors tensors_;
};

}  // namespace

int64_t size_of(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBool:
      return 1;
    default:
      return 2;
  }
}

double load(const void* data, DataType dtype, int64_t index) {
  if (dtype == DataType::kFloat32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == DataType::kFloat16 ? cuda_emulation::half_to_float(bits)
                                     : cuda_emulation::bfloat16_to_float(bits);
}

void store(void* data, DataType dtype, int64_t index, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DataType::kFloat32) {
    static_cast<float*>(data)[index] = single;
    return;
  }
  static_cast<uint16_t*>(data)[index] = dtype == DataType::kFloat16
                                            ? cuda_emulation::float_to_half(single)
                                            : cuda_emulation::float_to_bfloat16(single);
}

double round_to(DataType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DataType::kFloat16) {
    return cuda_emulation::half_to_float(cuda_emulation::float_to_half(single));
  }
  if (dtype == DataType::kBFloat16) {
    return cuda_emulation::bfloat16_to_float(cuda_emulation::float_to_bfloat16(single));
  }
  return single;
}

CaseTensors make_tensors(const AttentionCase& c) { return Builder(c).build(); }

}  // namespace qkexport::cases
