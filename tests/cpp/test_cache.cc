// Present keys and values: concatenated, appended in place, and refused positions.
#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;
using qkexport::KvCache;

struct Present {
  Present(Problem& p, int64_t total)
      : key(p.params.dtype, p.sizes.batch_size * p.sizes.num_kv_heads * total * p.sizes.head_dim),
        value(p.params.dtype,
              p.sizes.batch_size * p.sizes.num_kv_heads * total * p.sizes.head_dim_v) {
    p.params.present_key = bnsh(key.data(), p.sizes.num_kv_heads, total, p.sizes.head_dim);
    p.params.present_value = bnsh(value.data(), p.sizes.num_kv_heads, total, p.sizes.head_dim_v);
  }
  Tensor key, value;
};

Sizes two_heads(int64_t seqlen_q, int64_t past) {
  Sizes s;
  s.batch_size = 2;
  s.num_heads = s.num_kv_heads = 2;
  s.seqlen_q = s.seqlen_kv = seqlen_q;
  s.seqlen_past = past;
  return s;
}

double norm_of(const Tensor& t, int64_t row, int64_t width) {
  double squares = 0.0;
  for (int64_t d = 0; d < width; ++d) squares += t.get(row * width + d) * t.get(row * width + d);
  return std::sqrt(squares);
}

TEST(present_is_past_then_the_normalized_new_rows) {
  for (const int64_t seqlen : {1, 3, 150}) {
    Problem p(two_heads(seqlen, 5), DataType::kFloat32);
    Present present(p, 5 + seqlen);
    const std::vector<double> exact = Exact(p).output();
    for (const auto* kernels : all_kernels()) {
      CHECK(run(*kernels, p.params) == Status::kSuccess);
      CHECK(worst_error(p.output, exact) <= 1.0);
      for (int64_t pair = 0; pair < 4; ++pair) {
        for (int64_t i = 0; i < 5 * 8; ++i) {
          CHECK(present.key.get(pair * (5 + seqlen) * 8 + i) == p.past_key.get(pair * 40 + i));
        }
        // An RMS-normalized row of 8 channels has length sqrt(8).
        CHECK(std::abs(norm_of(present.key, pair * (5 + seqlen) + 5, 8) - std::sqrt(8.0)) < 1e-4);
        CHECK(present.value.get((pair * (5 + seqlen) + 5) * 8) == p.value.get(pair * seqlen * 8));
      }
    }
  }
}

// A static cache of `rows` rows filled as a concat problem has them.
struct StaticCache {
  StaticCache(Problem& p, int64_t rows)
      : key(p.params.dtype, 4 * rows * 8), value(p.params.dtype, 4 * rows * 8) {
    for (int64_t i = 0; i < key.size(); ++i) key.set(i, NAN), value.set(i, NAN);
    const int64_t past = p.sizes.seqlen_past;
    for (int64_t pair = 0; pair < 4; ++pair) {
      for (int64_t i = 0; i < past * 8; ++i) {
        key.set(pair * rows * 8 + i, p.past_key.get(pair * past * 8 + i));
        value.set(pair * rows * 8 + i, p.past_value.get(pair * past * 8 + i));
      }
    }
    p.params.past_key = bnsh(key.data(), 2, rows, 8);
    p.params.past_value = bnsh(value.data(), 2, rows, 8);
    p.params.kv_cache = KvCache::kStatic;
    p.params.causal = qkexport::Causal::kLowerRight;
    p.params.seqlen_past = p.params.seqlen_total = rows;
    lengths[0] = lengths[1] = past + p.sizes.seqlen_kv;
    p.params.kv_lengths = lengths;
  }
  Tensor key, value;
  int64_t lengths[2];
};

TEST(a_static_cache_is_appended_in_place_and_the_rest_is_left_alone) {
  for (const int64_t seqlen : {1, 4, 150}) {
    for (const auto* kernels : all_kernels()) {
      Problem p(two_heads(seqlen, 7), DataType::kFloat32);
      p.params.causal = qkexport::Causal::kLowerRight;
      const std::vector<double> exact = Exact(p).output();
      const int64_t rows = 200;
      StaticCache cache(p, rows);
      p.params.present_key = p.params.past_key;
      p.params.present_value = p.params.past_value;
      CHECK(run(*kernels, p.params) == Status::kSuccess);
      CHECK_TEXT(worst_error(p.output, exact) <= 1.0, kernels->name);
      for (int64_t pair = 0; pair < 4; ++pair) {
        CHECK(cache.key.get(pair * rows * 8) == p.past_key.get(pair * 7 * 8));
        CHECK(std::abs(norm_of(cache.key, pair * rows + 7, 8) - std::sqrt(8.0)) < 1e-4);
        CHECK(std::isnan(cache.key.get((pair * rows + 7 + seqlen) * 8)));
      }
    }
  }
}

TEST(a_static_cache_without_present_is_read_and_not_written) {
  for (const int64_t seqlen : {1, 4, 150}) {
    for (const auto* kernels : all_kernels()) {
      Problem p(two_heads(seqlen, 7), DataType::kFloat32);
      p.params.causal = qkexport::Causal::kLowerRight;
      const std::vector<double> exact = Exact(p).output();
      StaticCache cache(p, 200);
      CHECK(run(*kernels, p.params) == Status::kSuccess);
      CHECK_TEXT(worst_error(p.output, exact) <= 1.0, kernels->name);
      CHECK(std::isnan(cache.key.get(7 * 8)));
    }
  }
}

TEST(a_static_cache_in_another_buffer_is_copied_whole) {
  Problem p(two_heads(2, 7), DataType::kFloat32);
  StaticCache cache(p, 30);
  Present present(p, 30);
  for (const auto* kernels : all_kernels()) {
    CHECK(run(*kernels, p.params) == Status::kSuccess);
    CHECK(present.key.get(0) == cache.key.get(0));
    CHECK(std::isnan(cache.key.get(7 * 8)));
    CHECK(std::abs(norm_of(present.key, 8, 8) - std::sqrt(8.0)) < 1e-4);
    CHECK(std::isnan(present.key.get(9 * 8)));
  }
}

TEST(new_rows_that_would_land_before_the_buffer_are_dropped) {
  Problem p(two_heads(4, 0), DataType::kFloat32);
  StaticCache cache(p, 6);
  cache.lengths[0] = 2;   // tokens 2 and 3 land in rows 0 and 1
  cache.lengths[1] = -3;  // counts as 0: none lands
  p.params.present_key = p.params.past_key;
  p.params.present_value = p.params.past_value;
  for (const auto* kernels : all_kernels()) {
    CHECK(run(*kernels, p.params) == Status::kSuccess);
    CHECK(cache.value.get(0) == p.value.get(2 * 8));
    CHECK(std::isnan(cache.value.get(2 * 8)));
    CHECK(std::isnan(cache.value.get(2 * 6 * 8)));
    CHECK(p.output.get(2 * 4 * 8) == 0.0);
  }
}

TEST(a_position_outside_its_cache_is_refused_before_anything_is_written) {
  for (const int64_t bad : {-1, 4}) {
    Problem p(two_heads(2, 0), DataType::kFloat32);
    std::vector<float> table(4 * 4, 0.5f);
    const int64_t positions[] = {0, bad};
    p.params.rotary = qkexport::Rotary::kAfterNorm;
    p.params.rotary_dim = 8;
    p.params.query_rotary = {
        table.data(), table.data(), DataType::kFloat32, 4, 4, 0, 0, 4, positions, 0};
    p.params.key_rotary = p.params.query_rotary;
    for (int64_t i = 0; i < p.output.size(); ++i) p.output.set(i, 7.0);
    for (const auto* kernels : all_kernels()) {
      CHECK(run(*kernels, p.params) == Status::kInvalidPosition);
      CHECK(p.output.get(0) == 7.0);
    }
  }
}

TEST(a_small_workspace_is_refused) {
  Problem p(two_heads(2, 0), DataType::kFloat32);
  for (const auto* kernels : all_kernels()) {
    std::vector<char> workspace(qkexport::cpu::workspace_size(*kernels, p.params, 1) - 1);
    const Status status = qkexport::cpu::run(*kernels, p.params, workspace.data(), workspace.size(),
                                             {nullptr, 1, run_serially});
    CHECK(status == Status::kWorkspaceTooSmall);
  }
}

TEST(a_workspace_may_start_at_any_address) {
  Problem p(two_heads(40, 0), DataType::kFloat32);
  const std::vector<double> exact = Exact(p).output();
  for (const auto* kernels : all_kernels()) {
    const size_t bytes = qkexport::cpu::workspace_size(*kernels, p.params, 1);
    for (const size_t shift : {0, 1, 63}) {
      std::vector<char> workspace(bytes + shift);
      CHECK(qkexport::cpu::run(*kernels, p.params, workspace.data() + shift, bytes,
                               {nullptr, 1, run_serially}) == Status::kSuccess);
      CHECK(worst_error(p.output, exact) <= 1.0);
    }
  }
}

TEST(sizes_that_break_the_contract_are_refused) {
  Problem p(two_heads(2, 0), DataType::kFloat32);
  const auto refused = [&](auto change) {
    AttentionParams params = p.params;
    change(params);
    return qkexport::cpu::can_implement(params) != Status::kSuccess;
  };
  CHECK(!refused([](AttentionParams&) {}));
  CHECK(refused([](AttentionParams& a) { a.num_kv_heads = 3; }));
  CHECK(refused([](AttentionParams& a) { a.head_dim = 0; }));
  CHECK(refused([](AttentionParams& a) { a.batch_size = -1; }));
  CHECK(refused([](AttentionParams& a) { a.dtype = DataType::kBool; }));
  CHECK(refused([](AttentionParams& a) { a.kv_cache = KvCache::kStatic; }));
  CHECK(refused([](AttentionParams& a) {
    a.rotary = qkexport::Rotary::kAfterNorm;
    a.rotary_dim = 3;
  }));
}

}  // namespace
