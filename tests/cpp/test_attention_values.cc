// Values that arithmetic trips over: NaN, infinities, huge, tiny, and the bound on scores.
#include <limits>

#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;
using qkexport::Causal;

// Sizes that meet each way of reading keys: in place, packed for one item, packed and shared, as
// they are or split in parts.
const int64_t kRowCounts[] = {1, 40, 200, 300};

Sizes sizes_with(int64_t seqlen_q, int64_t seqlen_kv = 200) {
  Sizes s;
  s.seqlen_q = seqlen_q;
  s.seqlen_kv = seqlen_kv;
  s.head_dim = s.head_dim_v = 24;
  return s;
}

// bfloat16 has products of its own where the processor has them.
const DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16};

// limit: in units of the tolerance. Rounding of a score grows with the score.
void check_exact(Problem& problem, const char* what, double limit = 1.0) {
  const std::vector<double> exact = Exact(problem).output();
  for (const auto* kernels : kernels_for(problem.params)) {
    CHECK(run(*kernels, problem.params) == Status::kSuccess);
    const double error = worst_error(problem.output, exact);
    CHECK_TEXT(error <= limit,
               std::string(kernels->name) + " " + what + " " + std::to_string(error));
  }
}

TEST(a_hidden_key_or_value_does_not_reach_a_row) {
  for (const DataType type : kTypes) {
    for (const double poison : {double(NAN), double(INFINITY), double(-INFINITY)}) {
      for (const int64_t rows : kRowCounts) {
        Problem clean(sizes_with(rows), type), dirty(sizes_with(rows), type);
        const int64_t length = 150, width = 24;
        for (Problem* p : {&clean, &dirty}) p->params.kv_lengths = &length;
        for (int64_t i = length * width; i < 200 * width; ++i) {
          dirty.key.set(i, poison);
          dirty.value.set(i, poison);
        }
        for (const auto* kernels : kernels_for(clean.params)) {
          CHECK(run(*kernels, clean.params) == Status::kSuccess);
          CHECK(run(*kernels, dirty.params) == Status::kSuccess);
          for (int64_t i = 0; i < clean.output.size(); ++i) {
            CHECK(std::abs(clean.output.get(i) - dirty.output.get(i)) < 1e-6);
          }
        }
      }
    }
  }
}

TEST(under_a_causal_mask_nan_reaches_the_rows_that_see_it_and_no_other) {
  for (const DataType type : kTypes) {
    for (const int64_t rows : kRowCounts) {
      Problem p(sizes_with(rows), type);
      p.params.causal = Causal::kLowerRight;
      const int64_t poisoned = 200 - rows / 2 - 1, first = poisoned - (200 - rows);
      p.value.set(poisoned * 24 + 3, NAN);
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        for (int64_t i = 0; i < rows; ++i) {
          CHECK(std::isnan(p.output.get(i * 24 + 3)) == (i >= first));
          CHECK(!std::isnan(p.output.get(i * 24 + 2)));
        }
      }
    }
  }
}

TEST(a_nan_query_spoils_its_own_row_alone) {
  for (const DataType type : kTypes) {
    for (const int64_t rows : kRowCounts) {
      Problem p(sizes_with(rows), type);
      p.query.set((rows - 1) * 24, NAN);
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        for (int64_t i = 0; i < rows; ++i) {
          CHECK(std::isnan(p.output.get(i * 24)) == (i == rows - 1));
        }
      }
    }
  }
}

TEST(a_visible_infinite_value_follows_ieee) {
  for (const DataType type : kTypes) {
    for (const int64_t rows : kRowCounts) {
      Problem p(sizes_with(rows), type);
      p.value.set(7 * 24 + 5, INFINITY);
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        CHECK(p.output.get(5) == INFINITY);
        CHECK(std::isfinite(p.output.get(4)));
      }
    }
  }
}

TEST(a_row_that_sees_no_key_is_zero) {
  for (const DataType type : kTypes) {
    for (const int64_t rows : kRowCounts) {
      Problem p(sizes_with(rows, 64), type);
      std::vector<uint8_t> mask(static_cast<size_t>(rows * 64), 1);
      for (int64_t j = 0; j < 64; ++j) mask[static_cast<size_t>((rows - 1) * 64 + j)] = 0;
      p.params.mask = {mask.data(), DataType::kBool, 1, 0, 0, 64, 1};
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        for (int64_t c = 0; c < 24; ++c) CHECK(p.output.get((rows - 1) * 24 + c) == 0.0);
        if (rows > 1) CHECK(p.output.get(0) != 0.0);
      }
    }
  }
}

TEST(scores_of_minus_infinity_hide_their_keys_and_any_other_infinity_makes_nan) {
  for (const DataType type : kTypes) {
    for (const int64_t rows : kRowCounts) {
      Problem p(sizes_with(rows), type);
      p.params.normalize_key = false;
      for (int64_t i = 0; i < rows; ++i) p.query.set(i * 24, 1.0);
      for (int64_t j = 0; j < 200; ++j) p.key.set(j * 24, -INFINITY);
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        for (int64_t i = 0; i < p.output.size(); ++i) CHECK(p.output.get(i) == 0.0);
      }
      p.key.set(7 * 24, 0.5);  // all that is left to see
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        for (int64_t i = 0; i < p.output.size(); ++i) {
          CHECK(std::abs(p.output.get(i) - p.value.get(7 * 24 + i % 24)) < tolerance(type));
        }
      }
      p.key.set(150 * 24, INFINITY);
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        for (int64_t i = 0; i < p.output.size(); ++i) CHECK(std::isnan(p.output.get(i)));
      }
    }
  }
}

TEST(a_row_of_lowest_float_masks_is_a_plain_softmax) {
  for (const DataType type : kTypes) {
    for (const int64_t rows : kRowCounts) {
      Problem p(sizes_with(rows), type);
      float mask = std::numeric_limits<float>::lowest();
      p.params.mask = {&mask, DataType::kFloat32, 1, 0, 0, 0, 0};
      double mean = 0.0;
      for (int64_t j = 0; j < 200; ++j) mean += p.value.get(j * 24) / 200.0;
      for (const auto* kernels : kernels_for(p.params)) {
        CHECK(run(*kernels, p.params) == Status::kSuccess);
        // Adding the mask absorbs every score, as it does in PyTorch.
        CHECK(std::abs(p.output.get(0) - mean) < 2 * tolerance(type));
      }
    }
  }
}

TEST(magnitudes_of_the_values_do_not_matter) {
  for (const DataType type : kTypes) {
    for (const double magnitude : {1e-30, 1e-20, 1e20, 1e30}) {
      for (const int64_t rows : kRowCounts) {
        Problem p(sizes_with(rows), type);
        for (int64_t i = 0; i < p.value.size(); ++i) p.value.set(i, p.value.get(i) * magnitude);
        const std::vector<double> exact = Exact(p).output();
        for (const auto* kernels : kernels_for(p.params)) {
          CHECK(run(*kernels, p.params) == Status::kSuccess);
          for (size_t i = 0; i < exact.size(); ++i) {
            const double error = std::abs(p.output.get(static_cast<int64_t>(i)) - exact[i]);
            CHECK(error <= tolerance(type) * magnitude);
          }
        }
      }
    }
  }
}

TEST(magnitudes_of_queries_and_keys_vanish_in_the_norm) {
  for (const DataType type : kTypes) {
    for (const double magnitude : {1e-2, 1e4, 1e15}) {
      for (const int64_t rows : kRowCounts) {
        Problem p(sizes_with(rows), type);
        for (Tensor* t : {&p.query, &p.key}) {
          for (int64_t i = 0; i < t->size(); ++i) t->set(i, t->get(i) * magnitude);
        }
        check_exact(p, "magnitude");
      }
    }
  }
}

// Scores near, at and beyond the bound below which no running maximum is kept. The scale moves
// the Cauchy-Schwarz bound 24 * scale * log2(e) through 20.
TEST(results_do_not_change_where_the_bounded_softmax_ends) {
  for (const DataType type : kTypes) {
    for (const float bound :
         {0.0f, 1.0f, 19.0f, 19.97f, 19.99f, 20.0f, 20.01f, 20.5f, 60.0f, 500.0f}) {
      Problem p(sizes_with(200), type);
      p.params.scale = bound / (24.0f * 1.442695f);
      // Parallel and opposite vectors reach the bound from both sides.
      for (int64_t d = 0; d < 24; ++d) {
        p.key.set(5 * 24 + d, p.query.get(d));
        p.key.set(6 * 24 + d, -p.query.get(d));
      }
      // Rounding queries and keys moves a score by a share of itself.
      check_exact(p, "bound", 1.0 + bound / (type == DataType::kFloat32 ? 100.0 : 1.0));
    }
  }
}

TEST(rows_that_see_only_opposite_keys_are_exact_at_the_bound) {
  for (const DataType type : kTypes) {
    Problem p(sizes_with(200), type);
    p.params.scale = 19.9f / (24.0f * 1.442695f);
    for (int64_t i = 0; i < 200 * 24; ++i) p.key.set(i, -p.query.get(i % 24));
    for (int64_t i = 0; i < 200 * 24; ++i) p.query.set(i, p.query.get(i % 24));
    check_exact(p, "opposite", type == DataType::kFloat32 ? 1.0 : 10.0);
  }
}

TEST(scores_far_apart_do_not_overflow) {
  for (const DataType type : kTypes) {
    Problem p(sizes_with(200), type);
    p.params.scale = 1e4f;
    for (const auto* kernels : kernels_for(p.params)) {
      CHECK(run(*kernels, p.params) == Status::kSuccess);
      for (int64_t i = 0; i < p.output.size(); ++i) CHECK(std::isfinite(p.output.get(i)));
    }
  }
}

}  // namespace
