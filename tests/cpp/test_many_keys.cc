// Long key sequences: what each tile adds must not round off against the sum of all before it.
#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;

Sizes sizes_with(int64_t seqlen_kv) {
  Sizes s;
  s.seqlen_q = 300;
  s.seqlen_kv = seqlen_kv;
  s.head_dim = 16;
  s.head_dim_v = 8;
  return s;
}

struct Errors {
  double mean;  // signed: errors of one sign do not cancel over rows and keys
  double root_mean_square;
};

Errors relative_errors(const Tensor& got, const std::vector<double>& exact) {
  double sum = 0.0, squares = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = (got.get(static_cast<int64_t>(i)) - exact[i]) / exact[i];
    sum += error;
    squares += error * error;
  }
  const auto count = static_cast<double>(exact.size());
  return {sum / count, std::sqrt(squares / count)};
}

// Terms of one sign are the worst case, and what a value channel with a mean has.
TEST(positive_values_of_many_keys_add_up_without_bias_or_drift) {
  for (const int64_t seqlen_kv : {512, 16384}) {
    Problem p(sizes_with(seqlen_kv), DataType::kFloat32);
    for (int64_t i = 0; i < p.value.size(); ++i) p.value.set(i, 1.0 + 0.1 * p.value.get(i));
    const std::vector<double> exact = Exact(p).output();
    for (const auto* kernels : kernels_for(p.params)) {
      CHECK(run(*kernels, p.params) == Status::kSuccess);
      const Errors errors = relative_errors(p.output, exact);
      const std::string what =
          std::string(kernels->name) + " " + std::to_string(seqlen_kv) + " keys, in millionths: ";
      CHECK_TEXT(std::abs(errors.mean) < 3e-7, what + std::to_string(errors.mean * 1e6));
      CHECK_TEXT(errors.root_mean_square < 6e-7,
                 what + std::to_string(errors.root_mean_square * 1e6));
    }
  }
}

}  // namespace
