// Every instruction set and type over awkward sizes, against double.
#include <string>

#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;
using qkexport::Causal;

const DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};

void check(Problem& problem, const std::string& what) {
  const std::vector<double> exact = Exact(problem).output();
  for (const auto* kernels : kernels_for(problem.params)) {
    for (int64_t i = 0; i < problem.output.size(); ++i) problem.output.set(i, NAN);
    CHECK(run(*kernels, problem.params) == Status::kSuccess);
    const double error = worst_error(problem.output, exact);
    CHECK_TEXT(error <= 1.0,
               std::string(kernels->name) + " " + what + " error " + std::to_string(error));
  }
}

std::string describe(const Sizes& s, DataType type) {
  return "type " + std::to_string(static_cast<int>(type)) + " Sq " + std::to_string(s.seqlen_q) +
         " Skv " + std::to_string(s.seqlen_kv) + " P " + std::to_string(s.seqlen_past) + " D " +
         std::to_string(s.head_dim) + " Dv " + std::to_string(s.head_dim_v);
}

void check_sizes(const Sizes& sizes, DataType type, Causal causal) {
  Problem problem(sizes, type);
  problem.params.causal = causal;
  check(problem, describe(sizes, type));
}

TEST(every_sequence_length) {
  const std::vector<int64_t> lengths = {1, 2, 31, 33, 63, 64, 65, 127, 129, 257};
  for (const int64_t seqlen_q : lengths) {
    for (const int64_t seqlen_kv : lengths) {
      Sizes s;
      s.seqlen_q = seqlen_q;
      s.seqlen_kv = seqlen_kv;
      s.head_dim = 24;
      s.head_dim_v = 40;
      check_sizes(s, DataType::kFloat32, Causal::kNone);
      if (full_grid()) check_sizes(s, DataType::kFloat32, Causal::kLowerRight);
    }
  }
}

TEST(every_head_dim_and_type) {
  for (const int64_t head_dim : {8, 16, 24, 32, 40, 64, 72, 80, 96, 112, 128, 160, 192, 256, 512}) {
    for (const DataType type : kTypes) {
      for (const int64_t seqlen_q : {1, 33, 129}) {
        if (!full_grid() && head_dim > 128 && seqlen_q > 33) continue;
        Sizes s;
        s.seqlen_q = seqlen_q;
        s.seqlen_kv = 65;
        s.head_dim = head_dim;
        s.head_dim_v = head_dim;
        check_sizes(s, type, Causal::kNone);
      }
    }
  }
}

TEST(odd_head_dims_that_fill_no_vector) {
  for (const int64_t head_dim : {1, 3, 5, 7, 9, 15, 17, 31, 33}) {
    for (const DataType type : kTypes) {
      Sizes s;
      s.seqlen_q = 5;
      s.seqlen_kv = 37;
      s.head_dim = head_dim;
      s.head_dim_v = head_dim + 2;
      check_sizes(s, type, Causal::kNone);
      s.seqlen_q = 101;
      check_sizes(s, type, Causal::kUpperLeft);
    }
  }
}

TEST(grouped_heads_share_their_keys) {
  for (const int64_t seqlen_q : {1, 3, 17, 97}) {
    for (const DataType type : kTypes) {
      Sizes s;
      s.batch_size = 2;
      s.num_heads = 6;
      s.num_kv_heads = 2;
      s.seqlen_q = seqlen_q;
      s.seqlen_kv = 131;
      check_sizes(s, type, Causal::kNone);
    }
  }
}

TEST(causal_alignments_and_windows) {
  for (const Causal causal : {Causal::kNone, Causal::kUpperLeft, Causal::kLowerRight}) {
    for (const int64_t seqlen_q : {1, 7, 65, 201}) {
      for (const int64_t window : {-1, 0, 3, 70}) {
        Sizes s;
        s.seqlen_q = seqlen_q;
        s.seqlen_kv = 140;
        s.seqlen_past = 9;
        Problem problem(s, DataType::kFloat32);
        problem.params.causal = causal;
        problem.params.window_left = window;
        problem.params.window_right = window < 0 ? -1 : window / 2;
        check(problem, describe(s, DataType::kFloat32) + " window " + std::to_string(window));
      }
    }
  }
}

TEST(lengths_hide_the_padding) {
  const int64_t lengths[] = {0, 5, 128, 130};
  for (const int64_t seqlen_q : {1, 2, 40, 130}) {
    Sizes s;
    s.batch_size = 4;
    s.seqlen_q = seqlen_q;
    s.seqlen_kv = 130;
    Problem problem(s, DataType::kFloat32);
    problem.params.kv_lengths = lengths;
    check(problem, describe(s, DataType::kFloat32));
    problem.params.causal = Causal::kLowerRight;
    check(problem, describe(s, DataType::kFloat32) + " lower right");
  }
}

TEST(long_sequences_are_split_and_merged) {
  for (const int64_t seqlen_q : {1, 4, 20}) {
    Sizes s;
    s.seqlen_q = seqlen_q;
    s.seqlen_kv = full_grid() ? 65536 + 3 : 8192 + 3;
    check_sizes(s, DataType::kFloat32, Causal::kLowerRight);
    check_sizes(s, DataType::kBFloat16, Causal::kNone);
  }
}

TEST(packed_prefill_in_several_waves) {
  Sizes s;
  s.batch_size = 3;
  s.num_heads = s.num_kv_heads = 3;
  s.seqlen_q = 100;
  s.seqlen_kv = full_grid() ? 9000 : 2100;
  s.head_dim = s.head_dim_v = full_grid() ? 128 : 256;
  s.seqlen_q = full_grid() ? 200 : 100;
  Problem problem(s, DataType::kFloat32);
  check(problem, "waves");
}

TEST(no_size_is_too_empty) {
  for (const int64_t batch_size : {0, 1}) {
    for (const int64_t seqlen_q : {0, 3, 100}) {
      for (const int64_t seqlen_kv : {0, 2}) {
        Sizes s;
        s.batch_size = batch_size;
        s.seqlen_q = seqlen_q;
        s.seqlen_kv = seqlen_kv;
        check_sizes(s, DataType::kFloat32, Causal::kNone);
        check_sizes(s, DataType::kFloat16, Causal::kLowerRight);
      }
    }
  }
}

}  // namespace
