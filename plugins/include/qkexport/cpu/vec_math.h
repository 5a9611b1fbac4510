// exp and tanh on vectors. The polynomials are our own minimax fits; errors are tested against
// float64: exp2 and exp at most 2 ulp wherever the result is a normal number.
#pragma once

#include "qkexport/cpu/vec.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

constexpr float kLog2E = 0x1.715476p+0f;

// 2^f - 1 = f * P(f) on [-1/2, 1/2] with relative error 2.6e-9. The constant term is exactly 1,
// so exp2(0) = 1: the largest weight of a softmax row is exact.
inline Vec exp2_fraction(Vec f) {
  Vec p = splat(0x1.470b4ap-13f);
  p = fma(p, f, splat(0x1.5f7276p-10f));
  p = fma(p, f, splat(0x1.3b270ep-7f));
  p = fma(p, f, splat(0x1.c6ae72p-5f));
  p = fma(p, f, splat(0x1.ebfbe2p-3f));
  p = fma(p, f, splat(0x1.62e432p-1f));
  return fma(p, f, splat(1.0f));
}

// 2^x for x < 128. -inf gives 0 and NaN gives NaN.
inline Vec exp2(Vec x) {
  x = clamp_power(x);
  const Vec n = round(x);
  return scale_by_power(exp2_fraction(sub(x, n)), n);
}

// 2^(x - n) for |x| + |n| < 126, in fewer steps than exp2: adding 1.5 * 2^23 - n leaves round(x) -
// n in the low bits of the sum. x must be finite.
inline Vec exp2_minus(Vec x, int n) {
  const Vec shift = splat(0x1.8p23f - static_cast<float>(n));
  const Vec shifted = add(x, shift);
  return add_to_exponent(exp2_fraction(sub(x, sub(shifted, shift))), shifted);
}

// e^x for x < 88. The reduced argument x - n * ln(2) takes ln(2) in two parts, of which the first
// has so few bits that n times it is exact, with or without fused multiply-add.
inline Vec exp(Vec x) {
  constexpr float kLn2High = 0x1.62e4p-1f;
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  x = max(splat(-88.0f), x);  // e^-88 is 0 here: -88 * log2(e) rounds to -127
  const Vec n = round(mul(x, splat(kLog2E)));
  Vec r = fma(n, splat(-kLn2High), x);
  r = fma(n, splat(-kLn2Low), r);
  return scale_by_power(exp2_fraction(mul(r, splat(kLog2E))), n);
}

// tanh(x): x + x^3 * P(x^2) near 0, 1 - 2 / (e^2|x| + 1) elsewhere.
inline Vec tanh(Vec x) {
  const Vec z = mul(x, x);
  Vec p = splat(-0.005704987328499556f);
  p = fma(p, z, splat(0.0206390880048275f));
  p = fma(p, z, splat(-0.05373971536755562f));
  p = fma(p, z, splat(0.13331441581249237f));
  p = fma(p, z, splat(-0.3333328068256378f));
  const Vec near = fma(mul(x, z), p, x);
  const Vec magnitude = absolute(x);
  // Beyond 10 the quotient is below half an ulp of 1; the bound keeps exp finite. NaN passes.
  const Vec e = exp(min(splat(20.0f), add(magnitude, magnitude)));
  const Vec far = sub(splat(1.0f), div(splat(2.0f), add(e, splat(1.0f))));
  return select_less(magnitude, splat(0.625f), near, copy_sign(far, x));
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
