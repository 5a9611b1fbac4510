#include "check.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "device_memory.h"
#include "device_run.h"
#include "oracle.h"

namespace qkexport::cases {
namespace {

// Half a unit in the last place, relative to the value.
double unit_roundoff(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-21;  // sums of float taken in another order differ by a few units
  }
}

std::vector<double> gather(const StridedTensor& t, DataType dtype, int64_t batches, int64_t heads,
                           int64_t rows, int64_t channels) {
  std::vector<double> values;
  values.reserve(batches * heads * rows * channels);
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t s = 0; s < rows; ++s) {
        const int64_t base = b * t.batch_stride + h * t.head_stride + s * t.row_stride;
        for (int64_t i = 0; i < channels; ++i) values.push_back(load(t.data, dtype, base + i));
      }
    }
  }
  return values;
}

constexpr std::size_t kFewElements = 4096;

struct Comparison {
  double error = 0.0;
  double yardstick = 0.0;  // error of the eager evaluation
  double largest = 0.0;    // reference value
  int64_t worst = 0;
  int64_t mismatched_class = -1;  // first element that is finite on one side only
};

Comparison compare(const std::vector<double>& actual, const std::vector<double>& exact,
                   const std::vector<double>& eager) {
  Comparison result;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::isfinite(exact[i]) != std::isfinite(actual[i])) {
      if (result.mismatched_class < 0) result.mismatched_class = static_cast<int64_t>(i);
      continue;
    }
    if (!std::isfinite(exact[i])) continue;
    const double error = std::fabs(actual[i] - exact[i]);
    if (error > result.error) {
      result.error = error;
      result.worst = static_cast<int64_t>(i);
    }
    if (std::isfinite(eager[i])) {
      result.yardstick = std::max(result.yardstick, std::fabs(eager[i] - exact[i]));
    }
    result.largest = std::max(result.largest, std::fabs(exact[i]));
  }
  return result;
}

void judge(const std::string& name, const std::vector<double>& actual,
           const std::vector<double>& exact, const std::vector<double>& eager, DataType dtype,
           CheckResult& result) {
  const Comparison c = compare(actual, exact, eager);
  // The largest of a handful of errors says little about the next handful.
  const double factor = actual.size() < kFewElements ? 4.0 : 2.0;
  const double tolerance = factor * c.yardstick + 2.0 * unit_roundoff(dtype) * c.largest;
  result.error = std::max(result.error, c.error);
  result.tolerance = std::max(result.tolerance, tolerance);
  if (c.mismatched_class < 0 && c.error <= tolerance) return;
  std::ostringstream text;
  const int64_t at = c.mismatched_class >= 0 ? c.mismatched_class : c.worst;
  text << name << "[" << at << "] is " << actual[at] << " instead of " << exact[at] << ", error "
       << c.error << ", tolerance " << tolerance << ". ";
  result.message += text.str();
}

}  // namespace

CheckResult compare_with_oracle(const AttentionCase& c, const CaseTensors& tensors) {
  CheckResult result;
  const AttentionParams& p = tensors.params;
  const CaseTensors untouched = make_tensors(c);  // a run may have written into the past
  const OracleResult reference = exact(untouched.params);
  const OracleResult yardstick = eager(untouched.params);
  judge("output", gather(p.output, p.dtype, p.batch_size, p.num_heads, p.seqlen_q, p.head_dim_v),
        reference.output, yardstick.output, p.dtype, result);
  if (p.present_key.data != nullptr) {
    judge("present_key",
          gather(p.present_key, p.dtype, p.batch_size, p.num_kv_heads, p.seqlen_total, p.head_dim),
          reference.present_key, yardstick.present_key, p.dtype, result);
    judge("present_value",
          gather(p.present_value, p.dtype, p.batch_size, p.num_kv_heads, p.seqlen_total,
                 p.head_dim_v),
          reference.present_value, yardstick.present_value, p.dtype, result);
  }
  result.passed = result.message.empty();
  if (!result.passed) result.message = describe(c) + ": " + result.message;
  return result;
}

CheckResult check_case(const AttentionCase& c) {
  CaseTensors tensors = make_tensors(c);
  device_shuffle(c.seed);
  const std::string fault = run_on_device(tensors);
  if (!fault.empty()) return {false, 0.0, 0.0, describe(c) + ": " + fault};
  return compare_with_oracle(c, tensors);
}

}  // namespace qkexport::cases
