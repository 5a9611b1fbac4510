// One attention problem as a set of choices. The tests draw them; case_tensors.h makes the tensors.
#pragma once

#include <cstdint>
#include <string>

#include "qkexport/attention_params.h"

namespace qkexport::cases {

enum class GainShape { kNone, kShared, kPerHead };
enum class MaskShape {
  kNone,
  kFull,
  kPerHead,
  kPerBatch,
  kRow,
  kColumns,
  kWholeRows,
  kWindowBatch
};
enum class ScaleShape { kNone, kSingle, kPerHead, kPerRow };
enum class Presents { kNone, kCopied, kAliased };

// What some rows of the inputs are filled with beside random numbers. kParallel: all queries and
// keys have nearly the same direction, so that scores come close to their bound.
enum class Fill { kNormal, kZeroRows, kLarge, kTiny, kNonfiniteRows, kParallel };

struct AttentionCase {
  DataType dtype = DataType::kFloat16;
  int64_t batch_size = 1;
  int64_t seqlen_q = 64;
  int64_t seqlen_kv = 64;
  int64_t seqlen_past = 0;
  int64_t cache_rows = 0;   // of a static cache; 0: concatenated
  bool full_cache = false;  // the new tokens are its last rows, instead of any
  int64_t num_heads = 2;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  int64_t head_dim_v = 64;
  bool heads_first = false;  // BNSH instead of BSNH
  int64_t row_padding = 0;   // extra elements between rows
  int64_t misalignment = 0;  // elements by which every tensor starts late

  QkNorm qk_norm = QkNorm::kRms;
  NormAxis norm_axis = NormAxis::kHead;
  GainShape gain = GainShape::kShared;
  bool bias = false;
  bool float_gains = false;  // gains and caches are float32 instead of T
  bool normalize_key = true;
  int64_t num_segments = 1;

  Rotary rotary = Rotary::kNone;
  int64_t rotary_dim = 0;
  bool interleaved = false;
  bool full_width = false;
  bool position_ids = false;
  bool invalid_position = false;
  bool separate_key_rotary = false;
  bool rotary_per_head = false;

  MaskShape mask = MaskShape::kNone;
  DataType mask_dtype = DataType::kBool;
  ScaleShape head_scale = ScaleShape::kNone;
  Causal causal = Causal::kNone;
  int64_t window_left = -1;
  int64_t window_right = -1;
  float scale = 0.125f;
  float softcap = 0.0f;
  bool kv_lengths = false;
  Presents presents = Presents::kNone;
  Fill fill = Fill::kNormal;
  uint64_t seed = 1;
};

// All choices in one line, for reports.
std::string describe(const AttentionCase& c);

}  // namespace qkexport::cases
