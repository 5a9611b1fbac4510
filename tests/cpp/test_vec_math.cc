// exp2, exp and tanh of every instruction set against double.
#include <cmath>
#include <limits>
#include <random>

#include "isas.h"
#include "testing.h"

namespace {

constexpr int kExp2 = 0, kExp = 1, kTanh = 2, kExp2Minus20 = 3;

float evaluate(const qkexport::cpu::KernelTable& kernels, int function, float x) {
  float y = 0.0f;
  kernels.evaluate(function, &x, 1, &y);
  return y;
}

// Error in units in the last place of the float nearest to the exact value.
double ulps(float got, double exact) {
  const float nearest = static_cast<float>(exact);
  const double ulp = std::nextafter(std::abs(nearest), INFINITY) - std::abs(nearest);
  return std::abs(got - exact) / ulp;
}

template <typename Exact>
void check_ulps(int function, float lo, float hi, double limit, Exact exact) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(lo, hi);
  for (const auto* kernels : all_kernels()) {
    double worst = 0.0;
    for (int i = 0; i < 200000; ++i) {
      const float x = draw(random);
      const double error = ulps(evaluate(*kernels, function, x), exact(static_cast<double>(x)));
      worst = error > worst ? error : worst;
    }
    CHECK_TEXT(worst <= limit, std::string(kernels->name) + " " + std::to_string(worst));
  }
}

TEST(exp2_is_within_2_ulp_where_the_result_is_normal) {
  check_ulps(kExp2, -125.99f, 0.0f, 2.0, [](double x) { return std::exp2(x); });
  check_ulps(kExp2, -1.0f, 1.0f, 2.0, [](double x) { return std::exp2(x); });
  check_ulps(kExp2, 0.0f, 126.9f, 2.0, [](double x) { return std::exp2(x); });
}

TEST(the_weight_of_a_bounded_score_is_within_2_ulp) {
  check_ulps(kExp2Minus20, -21.0f, 21.0f, 2.0, [](double x) { return std::exp2(x - 20.0); });
  check_ulps(kExp2Minus20, -1.0f, 1.0f, 2.0, [](double x) { return std::exp2(x - 20.0); });
  check_ulps(kExp2Minus20, -100.0f, 100.0f, 2.0, [](double x) { return std::exp2(x - 20.0); });
}

TEST(exp_is_within_2_ulp_where_the_result_is_normal) {
  check_ulps(kExp, -87.3f, 0.0f, 2.0, [](double x) { return std::exp(x); });
  check_ulps(kExp, -0.5f, 0.5f, 2.0, [](double x) { return std::exp(x); });
  check_ulps(kExp, 0.0f, 87.9f, 2.0, [](double x) { return std::exp(x); });
}

// Every step-th float from `hi` down to `lo`, both negative; step 1 would be each of them.
template <typename Exact>
void check_ulps_densely(int function, float hi, float lo, uint32_t step, Exact exact) {
  const auto bits_of = [](float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
  };
  constexpr int64_t kBatch = 1024;
  float x[kBatch], y[kBatch];
  for (const auto* kernels : all_kernels()) {
    double worst = 0.0;
    for (uint32_t bits = bits_of(hi); bits <= bits_of(lo);) {
      int64_t n = 0;
      for (; n < kBatch && bits <= bits_of(lo); ++n, bits += step) {
        __builtin_memcpy(&x[n], &bits, sizeof bits);
      }
      kernels->evaluate(function, x, n, y);
      for (int64_t i = 0; i < n; ++i) {
        const double error = ulps(y[i], exact(static_cast<double>(x[i])));
        worst = error > worst ? error : worst;
      }
    }
    CHECK_TEXT(worst <= 2.0, std::string(kernels->name) + " " + std::to_string(worst));
  }
}

TEST(exponentials_of_all_that_a_softmax_can_ask_are_within_2_ulp) {
  // Primes, so that the low bits take every value.
  const uint32_t step = testing::full_grid() ? 11 : 4099;
  check_ulps_densely(kExp2, -1e-12f, -126.0f, step, [](double x) { return std::exp2(x); });
  check_ulps_densely(kExp, -1e-12f, -87.33f, step, [](double x) { return std::exp(x); });
  const auto bounded = [](double x) { return std::exp2(x - 20.0); };
  check_ulps_densely(kExp2Minus20, -1e-12f, -21.0f, step, bounded);
}

TEST(tanh_is_within_4_ulp) {
  check_ulps(kTanh, -12.0f, 12.0f, 4.0, [](double x) { return std::tanh(x); });
  check_ulps(kTanh, -0.7f, 0.7f, 4.0, [](double x) { return std::tanh(x); });
  check_ulps(kTanh, -1e-3f, 1e-3f, 4.0, [](double x) { return std::tanh(x); });
}

TEST(exponentials_at_the_ends) {
  for (const auto* kernels : all_kernels()) {
    for (const int function : {kExp2, kExp}) {
      CHECK(evaluate(*kernels, function, 0.0f) == 1.0f);
      CHECK(evaluate(*kernels, function, -INFINITY) == 0.0f);
      CHECK(evaluate(*kernels, function, -1e30f) == 0.0f);
      CHECK(evaluate(*kernels, function, std::numeric_limits<float>::lowest()) == 0.0f);
      CHECK(std::isnan(evaluate(*kernels, function, NAN)));
      CHECK(evaluate(*kernels, function, -130.0f) <= std::numeric_limits<float>::min());
    }
  }
}

TEST(tanh_at_the_ends) {
  for (const auto* kernels : all_kernels()) {
    CHECK(evaluate(*kernels, kTanh, INFINITY) == 1.0f);
    CHECK(evaluate(*kernels, kTanh, -INFINITY) == -1.0f);
    CHECK(evaluate(*kernels, kTanh, 0.0f) == 0.0f);
    CHECK(std::isnan(evaluate(*kernels, kTanh, NAN)));
  }
}

}  // namespace
