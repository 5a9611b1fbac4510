// float32 in three bfloat16 parts: every product of parts counts, and numbers out of their range
// are met wherever they are.
#include <algorithm>
#include <string>

#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;
using qkexport::Causal;
using qkexport::cpu::KernelTable;

// Two row tiles a head and three tiles of keys; the last block of rows has 6, the last panel of
// values stands alone.
Sizes two_row_tiles() {
  Sizes s;
  s.seqlen_q = s.seqlen_kv = 262;
  s.head_dim = 40;
  s.head_dim_v = 96;
  return s;
}

// All heads of a group in one row tile and a bit.
Sizes stacked_row_tiles() {
  Sizes s;
  s.batch_size = 2;
  s.num_heads = 6;
  s.num_kv_heads = 2;
  s.seqlen_q = s.seqlen_kv = 101;
  return s;
}

const KernelTable* split_kernels() {
  const KernelTable* amx = qkexport::cpu::find_kernels("amx");
  return amx == nullptr ? nullptr : amx->others;
}

// limit: of the error of each output, in units of `unit`.
void check_error(Problem& p, const std::vector<double>& exact, double limit, double unit,
                 const std::string& what) {
  const KernelTable* kernels = split_kernels();
  if (kernels == nullptr) return;
  CHECK(&qkexport::cpu::serving_kernels(*kernels, p.params) == kernels);
  for (int64_t i = 0; i < p.output.size(); ++i) p.output.set(i, NAN);
  CHECK(run(*kernels, p.params) == Status::kSuccess);
  double largest = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(p.output.get(static_cast<int64_t>(i)) - exact[i]) / unit;
    if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
  }
  CHECK_TEXT(largest <= limit, what + ": " + std::to_string(largest / limit) + " of the limit");
}

void scale_tensor(Tensor& t, double factor) {
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, t.get(i) * factor);
}

// Whatever the weight of a key that a row sees alone, its value comes back with all 24 bits, be it
// in the range of the parts, at its ends or far out.
TEST(a_value_seen_alone_comes_back_whole) {
  for (const int exponent : {-120, -90, -61, -60, 0, 56, 57, 127}) {
    Problem p(two_row_tiles(), DataType::kFloat32);
    p.params.causal = Causal::kUpperLeft;
    p.params.window_left = 0;
    // Weights down to 2^-37, or near 1 where their products would be subnormal.
    p.params.scale = exponent < -100 ? 1e-3f : 2.0f * p.params.scale;
    const double unit = std::ldexp(1.0, exponent);
    for (int64_t i = 0; i < p.value.size(); ++i) {
      p.value.set(i, (1.0 + std::abs(std::sin(static_cast<double>(i)))) * unit);
    }
    check_error(p, Exact(p).output(), 0x1p-21, unit, "2^" + std::to_string(exponent));
  }
}

// Scores of about 25 whose difference decides between two keys.
TEST(scores_are_as_exact_as_float32) {
  for (const int64_t head_dim : {32, 40, 64}) {
    Sizes s = two_row_tiles();
    s.head_dim = head_dim;
    s.head_dim_v = 8;
    Problem p(s, DataType::kFloat32);
    p.params.causal = Causal::kUpperLeft;
    p.params.window_left = 1;
    p.params.scale = 25.0f / std::sqrt(static_cast<float>(head_dim));
    check_error(p, Exact(p).output(), 1e-5, 1.0, "head_dim " + std::to_string(head_dim));
  }
}

// Out of range are the values of one tile of keys, the first, the second or the last.
TEST(values_out_of_range_are_met_in_any_tile_of_keys) {
  for (const int64_t tile : {0, 1, 2}) {
    for (const double magnitude : {1e-36, 1e30}) {
      Problem p(two_row_tiles(), DataType::kFloat32);
      p.params.scale = 1e-3f;
      const int64_t width = p.params.head_dim_v;
      for (int64_t i = 0; i < p.value.size(); ++i) {
        const bool there = i / width / 128 == tile;
        p.value.set(i, there ? (2.0 + std::sin(static_cast<double>(i))) * magnitude : 0.0);
      }
      check_error(p, Exact(p).output(), 2e-6, magnitude, "tile " + std::to_string(tile));
    }
  }
}

// Norms of the keys, then of the queries, out of range, and their products not.
TEST(queries_and_keys_out_of_range_are_met) {
  for (const Sizes& sizes : {two_row_tiles(), stacked_row_tiles()}) {
    for (const int exponent : {119, -119}) {
      Problem p(sizes, DataType::kFloat32);
      p.params.normalize_key = false;
      scale_tensor(p.key, std::ldexp(1.0, exponent));
      p.params.scale *= static_cast<float>(std::ldexp(1.0, -exponent));
      check_error(p, Exact(p).output(), 3e-6, 1.0, "keys 2^" + std::to_string(exponent));
    }
  }
}

// One query in a block in the middle of a row tile, or in the last.
TEST(a_single_query_out_of_range_is_met) {
  for (const int64_t row : {200, 258}) {
    Problem p(two_row_tiles(), DataType::kFloat32);
    p.params.normalize_key = false;
    scale_tensor(p.key, 0x1p-119);
    p.params.scale = 0.0f;
    std::vector<double> exact = Exact(p).output();
    p.params.scale = 0x1p117f;
    const std::vector<double> large = Exact(p).output();
    const auto width = static_cast<std::ptrdiff_t>(p.params.head_dim_v);
    std::copy_n(large.begin() + row * width, width, exact.begin() + row * width);
    std::vector<float> head_scale(262, 0.0f);
    head_scale[static_cast<size_t>(row)] = 1.0f;
    p.params.head_scale = head_scale.data();
    p.params.head_scale_row_stride = 1;
    check_error(p, exact, 3e-6, 1.0, "query " + std::to_string(row));
  }
}

// Every row tile of every head is left to other kernels, and each writes its own rows.
TEST(all_heads_and_row_tiles_are_written_where_values_are_out_of_range) {
  for (Sizes sizes : {two_row_tiles(), stacked_row_tiles()}) {
    sizes.batch_size = 2;
    sizes.num_heads = 4;
    sizes.num_kv_heads = 2;
    Problem p(sizes, DataType::kFloat32);
    p.params.causal = Causal::kLowerRight;
    scale_tensor(p.value, 1e30);
    check_error(p, Exact(p).output(), 4e-6, 1e30, "Sq " + std::to_string(sizes.seqlen_q));
  }
}

// Sums of values near the largest float: as other kernels know the largest norm of a key, weights
// are small enough for 1024 of them.
TEST(sums_of_huge_values_do_not_overflow) {
  Sizes s = two_row_tiles();
  s.seqlen_q = 130;
  s.seqlen_kv = 1024;
  s.head_dim = s.head_dim_v = 24;
  Problem p(s, DataType::kFloat32);
  for (int64_t i = 0; i < p.value.size(); ++i) {
    p.value.set(i, (2.0 + std::sin(static_cast<double>(i))) * 1e37);
  }
  check_error(p, Exact(p).output(), 4e-6, 1e37, "1024 keys");
}

// Counts of rows, keys and channels around those of a tile register and of two.
TEST(sizes_that_fill_no_register) {
  Sizes s;
  for (const int64_t more : {0, 1, 15, 16, 17, 31, 32, 33}) {
    s.seqlen_q = 128 + more;
    s.seqlen_kv = 1 + 2 * more;
    s.head_dim = 1 + more;
    s.head_dim_v = 3 + more;
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
      Problem p(s, type);
      check_error(p, Exact(p).output(), 2.0, tolerance(type), "128 + " + std::to_string(more));
    }
  }
}

}  // namespace
