// Runs cases whose tensors are spread over more than 2^31 elements. Linked against the emulation or
// against CUDA. Exit code 1 where a case fails.
#include <cstdio>

#include "far_strides.h"

namespace {

using namespace qkexport;
using namespace qkexport::cases;

AttentionCase prefill(DataType dtype) {
  AttentionCase c;
  c.dtype = dtype;
  c.batch_size = 2;
  c.seqlen_q = c.seqlen_kv = 65;
  c.num_heads = c.num_kv_heads = 2;
  c.head_dim = c.rotary_dim = 40;
  c.head_dim_v = 24;
  c.rotary = Rotary::kAfterNorm;
  c.mask = MaskShape::kFull;
  c.causal = Causal::kLowerRight;
  c.presents = Presents::kCopied;
  return c;
}

AttentionCase with_past(DataType dtype) {
  AttentionCase c = prefill(dtype);
  c.seqlen_past = 37;
  c.mask = MaskShape::kNone;
  return c;
}

// Grouped heads, split keys, and new rows appended in place.
AttentionCase decode(DataType dtype) {
  AttentionCase c = prefill(dtype);
  c.seqlen_q = c.seqlen_kv = 2;
  c.num_kv_heads = 1;
  c.cache_rows = 520;
  c.full_cache = true;
  c.mask = MaskShape::kNone;
  c.presents = Presents::kAliased;
  return c;
}

AttentionCase odd_widths(DataType dtype) {
  AttentionCase c = prefill(dtype);
  c.head_dim = c.head_dim_v = 33;
  c.rotary_dim = 16;
  c.presents = Presents::kNone;
  return c;
}

// Keys that are used as they are: attention reads them where they stand.
AttentionCase keys_in_place(DataType dtype) {
  AttentionCase c = prefill(dtype);
  c.normalize_key = false;
  c.presents = Presents::kNone;
  return c;
}

AttentionCase norm_over_heads(DataType dtype) {
  AttentionCase c = with_past(dtype);
  c.norm_axis = NormAxis::kHidden;
  return c;
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  int ran = 0;
  int failed = 0;
  for (const auto& make :
       {prefill, with_past, decode, odd_widths, keys_in_place, norm_over_heads}) {
    for (const DataType dtype : {DataType::kFloat16, DataType::kFloat32}) {
      for (const FarAxis axis : {FarAxis::kBatch, FarAxis::kHead, FarAxis::kRow}) {
        const CheckResult result = check_far_case(make(dtype), axis);
        ++ran;
        if (result.passed) continue;
        ++failed;
        std::printf("FAILED along axis %d: %s\n", static_cast<int>(axis), result.message.c_str());
      }
    }
  }
  std::printf("%d cases, %d failed\n", ran, failed);
  return failed == 0 ? 0 : 1;
}
