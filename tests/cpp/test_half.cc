// Conversions of the 16-bit types against double arithmetic.
#define QKEXPORT_CPU_ISA isa_test
#include <cmath>
#include <limits>

#include "qkexport/cpu/half.h"
#include "testing.h"

namespace {

using namespace qkexport::cpu;

double half_value(uint32_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31);
  const double mantissa = bits & 1023;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

// Nearest half of a positive finite number by search; ties go to the even pattern.
uint16_t nearest_half(double x) {
  uint16_t best = 0;
  for (uint32_t bits = 0; bits <= 0x7C00; ++bits) {
    // Infinity stands at 2^16 for rounding.
    const double value = bits == 0x7C00 ? 65536.0 : half_value(bits);
    const double best_value = best == 0x7C00 ? 65536.0 : half_value(best);
    const double distance = std::abs(value - x), best_distance = std::abs(best_value - x);
    if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
      best = static_cast<uint16_t>(bits);
    }
  }
  return best;
}

TEST(every_half_reads_as_its_value) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = half_bits_to_float(static_cast<uint16_t>(bits));
    const double expected = half_value(bits);
    CHECK(std::isnan(expected) ? std::isnan(x) : x == expected);
  }
}

TEST(every_half_survives_the_round_trip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = half_bits_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(x)) CHECK(float_to_half_bits(x) == bits);
  }
}

TEST(floats_round_to_the_nearest_half) {
  const double samples[] = {0.0,     0x1p-26, 0x1p-25, 0x1.8p-25, 0x1p-24,  0x1.8p-24, 0x1.ffcp-15,
                            0.1,     1.0,     1.0005,  2049.0,    2051.0,   65503.0,   65519.0,
                            65520.0, 70000.0, 3.14159, 0x1.002p0, 0x1.006p0};
  for (const double x : samples) {
    const uint16_t expected = nearest_half(x);
    CHECK_TEXT(float_to_half_bits(static_cast<float>(x)) == expected, std::to_string(x));
    CHECK(float_to_half_bits(static_cast<float>(-x)) == (expected | 0x8000));
  }
}

TEST(floats_round_to_the_nearest_bfloat16) {
  CHECK(float_to_bfloat16_bits(1.0f) == 0x3F80);
  CHECK(float_to_bfloat16_bits(0x1.01p0f) == 0x3F80);        // tie, even below
  CHECK(float_to_bfloat16_bits(0x1.03p0f) == 0x3F82);        // tie, even above
  CHECK(float_to_bfloat16_bits(0x1.010002p0f) == 0x3F81);    // just above the tie
  CHECK(float_to_bfloat16_bits(0x1.fffffep127f) == 0x7F80);  // rounds to infinity
  CHECK(float_to_bfloat16_bits(-2.5f) == 0xC020);
  CHECK(std::isnan(bfloat16_bits_to_float(float_to_bfloat16_bits(NAN))));
}

TEST(nan_stays_nan_in_half) {
  CHECK(std::isnan(half_bits_to_float(float_to_half_bits(NAN))));
  CHECK(std::isinf(half_bits_to_float(float_to_half_bits(INFINITY))));
}

}  // namespace
