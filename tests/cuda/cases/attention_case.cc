#include "attention_case.h"

#include <sstream>

namespace qkexport::cases {
namespace {

const char* name_of(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return "fp32";
    case DataType::kFloat16:
      return "fp16";
    case DataType::kBFloat16:
      return "bf16";
    default:
      return "bool";
  }
}

}  // namespace

std::string describe(const AttentionCase& c) {
  std::ostringstream text;
  text << name_of(c.dtype) << " B" << c.batch_size << " Sq" << c.seqlen_q << " Skv" << c.seqlen_kv
       << " P" << c.seqlen_past << " M" << c.cache_rows << " H" << c.num_heads << "/"
       << c.num_kv_heads << " D" << c.head_dim << "/" << c.head_dim_v
       << (c.heads_first ? " bnsh" : " bsnh") << " pad" << c.row_padding << " mis" << c.misalignment
       << " norm" << static_cast<int>(c.qk_norm) << " axis" << static_cast<int>(c.norm_axis)
       << " gain" << static_cast<int>(c.gain) << " bias" << c.bias << " floatgains" << c.float_gains
       << " normkey" << c.normalize_key << " G" << c.num_segments << " rotary"
       << static_cast<int>(c.rotary) << " R" << c.rotary_dim << " inter" << c.interleaved << " full"
       << c.full_width << " pos" << c.position_ids << c.invalid_position << " keyrot"
       << c.separate_key_rotary << " rothead" << c.rotary_per_head << " mask"
       << static_cast<int>(c.mask) << ":" << name_of(c.mask_dtype) << " hs"
       << static_cast<int>(c.head_scale) << " causal" << static_cast<int>(c.causal) << " window"
       << c.window_left << "," << c.window_right << " scale" << c.scale << " cap" << c.softcap
       << " len" << c.kv_lengths << " present" << static_cast<int>(c.presents) << " fill"
       << static_cast<int>(c.fill) << " seed" << c.seed;
  return text.str();
}

}  // namespace qkexport::cases
