// Masks, softcap and their edges on every path: whole vectors, the vectors at the ends, and none.
#include <string>

#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;
using qkexport::Causal;

const DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
// In place, packed for one item, packed and shared; 197 and 300 end in the middle of a tile.
const int64_t kRowCounts[] = {1, 5, 40, 197};
const int64_t kKeyCounts[] = {3, 129, 300};

Sizes sizes_with(int64_t seqlen_q, int64_t seqlen_kv) {
  Sizes s;
  s.seqlen_q = seqlen_q;
  s.seqlen_kv = seqlen_kv;
  s.head_dim = s.head_dim_v = 40;
  return s;
}

template <typename Change>
void check_each(const char* what, Change change) {
  for (const DataType type : kTypes) {
    for (const int64_t seqlen_q : kRowCounts) {
      for (const int64_t seqlen_kv : kKeyCounts) {
        Problem p(sizes_with(seqlen_q, seqlen_kv), type);
        std::mt19937 random(7);
        change(p, random);
        const std::vector<double> exact = Exact(p).output();
        for (const auto* kernels : kernels_for(p.params)) {
          for (int64_t i = 0; i < p.output.size(); ++i) p.output.set(i, NAN);
          CHECK(run(*kernels, p.params) == Status::kSuccess);
          const double error = worst_error(p.output, exact);
          CHECK_TEXT(error <= 1.0, std::string(kernels->name) + " " + what + " Sq " +
                                       std::to_string(seqlen_q) + " T " +
                                       std::to_string(seqlen_kv) + " " + std::to_string(error));
        }
      }
    }
  }
}

template <typename Element, typename Draw>
void fill_mask(Problem& p, std::vector<Element>& mask, DataType type, Draw draw) {
  const int64_t rows = p.params.seqlen_q, columns = p.params.seqlen_total;
  mask.resize(static_cast<size_t>(rows * columns));
  for (Element& x : mask) x = draw();
  p.params.mask = {mask.data(), type, 1, 0, 0, columns, 1};
}

TEST(a_random_bool_mask) {
  std::vector<uint8_t> mask;
  check_each("bool", [&](Problem& p, std::mt19937& random) {
    // Any byte but 0 is true.
    fill_mask(p, mask, DataType::kBool, [&] { return random() % 3 ? uint8_t(random() % 4) : 0; });
  });
}

TEST(a_bool_mask_under_a_causal_one) {
  std::vector<uint8_t> mask;
  check_each("bool causal", [&](Problem& p, std::mt19937& random) {
    p.params.causal = Causal::kLowerRight;
    fill_mask(p, mask, DataType::kBool, [&] { return uint8_t(random() % 2); });
  });
}

// Rows of a block see a tile of 128 keys in part, wholly, or not at all.
TEST(a_bool_mask_that_hides_and_shows_whole_tiles) {
  std::vector<uint8_t> mask;
  check_each("bool tiles", [&](Problem& p, std::mt19937& random) {
    const int64_t columns = p.params.seqlen_total;
    int64_t at = 0;
    fill_mask(p, mask, DataType::kBool, [&] {
      const int64_t row = at / columns, column = at++ % columns;
      const int64_t kind = (row / 32 + column / 128) % 3;
      return kind == 2 ? uint8_t(random() % 2) : uint8_t(3 * kind);
    });
  });
}

TEST(a_causal_mask_as_booleans) {
  std::vector<uint8_t> mask;
  check_each("bool as causal", [&](Problem& p, std::mt19937&) {
    const int64_t columns = p.params.seqlen_total;
    int64_t at = 0;
    fill_mask(p, mask, DataType::kBool, [&] {
      const int64_t row = at / columns, column = at++ % columns;
      return uint8_t(column <= row + 100);
    });
  });
}

// One key of a tile is seen by one row of a block: neither end of the tile may be overlooked.
TEST(a_single_key_in_a_hidden_tile_and_a_hidden_one_in_a_visible_tile) {
  std::vector<uint8_t> mask;
  for (const uint8_t others : {0, 1}) {
    for (const int64_t column : {0, 63, 127, 128, 191, 255, 299}) {
      check_each("one key", [&](Problem& p, std::mt19937&) {
        fill_mask(p, mask, DataType::kBool, [&] { return others; });
        const int64_t columns = p.params.seqlen_total, row = p.params.seqlen_q / 2;
        if (column < columns) mask[static_cast<size_t>(row * columns + column)] = 1 - others;
      });
    }
  }
}

// Nothing of a tile that no row sees may reach one, nor of the keys of other rows.
TEST(hidden_tiles_that_are_not_numbers) {
  std::vector<uint8_t> mask;
  check_each("hidden NaN", [&](Problem& p, std::mt19937&) {
    const int64_t columns = p.params.seqlen_total, hidden = columns < 128 ? columns - 1 : 128;
    int64_t at = 0;
    fill_mask(p, mask, DataType::kBool, [&] { return uint8_t(at++ % columns < hidden); });
    for (int64_t i = hidden * p.params.head_dim; i < p.key.size(); ++i) p.key.set(i, NAN);
    for (int64_t i = hidden * p.params.head_dim_v; i < p.value.size(); ++i)
      p.value.set(i, INFINITY);
  });
}

TEST(a_random_additive_mask_with_infinities) {
  std::vector<float> mask;
  check_each("additive", [&](Problem& p, std::mt19937& random) {
    std::normal_distribution<float> draw;
    fill_mask(p, mask, DataType::kFloat32, [&] { return random() % 5 ? draw(random) : -INFINITY; });
  });
}

TEST(softcap_before_the_mask_and_within_a_window) {
  std::vector<float> mask;
  check_each("softcap", [&](Problem& p, std::mt19937& random) {
    std::normal_distribution<float> draw;
    p.params.scale = 0.3f;
    p.params.softcap = 2.0f;
    p.params.window_left = 70;
    p.params.window_right = 33;
    fill_mask(p, mask, DataType::kFloat32, [&] { return draw(random); });
  });
}

TEST(one_mask_value_for_all_columns) {
  std::vector<uint8_t> mask;
  check_each("column", [&](Problem& p, std::mt19937& random) {
    mask.assign(static_cast<size_t>(p.params.seqlen_q), 0);
    for (uint8_t& x : mask) x = random() % 2;
    p.params.mask = {mask.data(), DataType::kBool, 1, 0, 0, 1, 0};
  });
}

TEST(amx_kernels_leave_calls_to_others) {
  using qkexport::cpu::serving_kernels;
  const auto* amx = qkexport::cpu::find_kernels("amx");
  if (amx == nullptr) return;
  const auto* avx512 = qkexport::cpu::find_kernels("avx512");
  const Problem few(sizes_with(40, 300), DataType::kFloat32);
  const Problem many(sizes_with(300, 300), DataType::kFloat32);
  const Problem half(sizes_with(300, 300), DataType::kFloat16);
  const Problem bfloat16(sizes_with(300, 300), DataType::kBFloat16);
  CHECK(&serving_kernels(*amx, few.params) == avx512);
  CHECK(&serving_kernels(*amx, many.params) == amx->others);
  CHECK(&serving_kernels(*amx, half.params) == amx->others);
  CHECK(&serving_kernels(*amx, bfloat16.params) == amx);
  CHECK(&serving_kernels(*avx512, many.params) == avx512);
}

}  // namespace
