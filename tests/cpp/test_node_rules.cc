// What a node may say: attributes, roles, types and shapes. One test a refusal.
#include <map>
#include <string>

#include "qkexport/op/check_signature.h"
#include "testing.h"

namespace {

using namespace qkexport::op;

class Attributes : public AttributeReader {
 public:
  std::map<std::string, int64_t> ints = {
      {"num_heads", 4},  {"num_kv_heads", 2}, {"normalize_key", 1}, {"rotary_interleaved", 0},
      {"rotary_dim", 0}, {"window_left", -1}, {"window_right", -1}};
  std::map<std::string, float> floats = {
      {"qk_norm_epsilon", 1e-6f}, {"scale", 0.5f}, {"softcap", 0.0f}};
  std::map<std::string, std::string> strings = {
      {"qk_norm", "rms"}, {"norm_axis", "head"}, {"norm_rounding", "after_weight"},
      {"rotary", "none"}, {"causal", "none"},    {"kv_cache", "concat"}};

  bool read_int(const char* name, int64_t& value) const override { return find(ints, name, value); }
  bool read_float(const char* name, float& value) const override {
    return find(floats, name, value);
  }
  bool read_string(const char* name, std::string& value) const override {
    return find(strings, name, value);
  }

 private:
  template <typename T>
  static bool find(const std::map<std::string, T>& values, const char* name, T& value) {
    const auto found = values.find(name);
    if (found != values.end()) value = found->second;
    return found != values.end();
  }
};

template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Refusal& refused) {
    return refused.what();
  }
  return "";
}

void check_refused(const std::string& message, const std::string& part) {
  CHECK_TEXT(message.find(part) != std::string::npos, "'" + part + "' in '" + message + "'");
}

std::string refused_spec(const std::function<void(Attributes&)>& change) {
  Attributes attributes;
  change(attributes);
  return refusal([&] { read_spec(attributes); });
}

TEST(a_complete_node_is_read) {
  Attributes attributes;
  attributes.strings["qk_norm"] = "l2";
  attributes.strings["causal"] = "lower_right";
  const AttentionSpec spec = read_spec(attributes);
  CHECK(spec.num_heads == 4 && spec.num_kv_heads == 2);
  CHECK(spec.qk_norm == qkexport::QkNorm::kL2);
  CHECK(spec.causal == qkexport::Causal::kLowerRight);
  CHECK(spec.normalize_key && spec.window_left == -1 && spec.scale == 0.5f);
}

TEST(every_attribute_must_be_written_out) {
  const Attributes complete;
  for (const auto& [name, value] : complete.ints) {
    check_refused(refused_spec([&](Attributes& a) { a.ints.erase(name); }), "none for " + name);
  }
  for (const auto& [name, value] : complete.floats) {
    check_refused(refused_spec([&](Attributes& a) { a.floats.erase(name); }), "none for " + name);
  }
  for (const auto& [name, value] : complete.strings) {
    check_refused(refused_spec([&](Attributes& a) { a.strings.erase(name); }), "none for " + name);
  }
}

TEST(heads_must_divide) {
  check_refused(refused_spec([](Attributes& a) { a.ints["num_kv_heads"] = 3; }),
                "num_heads must be a multiple of num_kv_heads, got 4 and 3.\nNote: ");
}

TEST(values_out_of_range_are_refused) {
  check_refused(refused_spec([](Attributes& a) { a.ints["num_heads"] = 0; }), "at least 1, got 0");
  check_refused(refused_spec([](Attributes& a) { a.ints["rotary_dim"] = 3; }), "even, got 3");
  check_refused(refused_spec([](Attributes& a) { a.ints["rotary_dim"] = -2; }), "at least 0");
  check_refused(refused_spec([](Attributes& a) { a.ints["window_left"] = -2; }), "at least -1");
  check_refused(refused_spec([](Attributes& a) { a.ints["normalize_key"] = 2; }), "0 or 1, got 2");
  check_refused(refused_spec([](Attributes& a) { a.ints["window_right"] = int64_t{1} << 40; }),
                "fit in 32 bits");
  check_refused(refused_spec([](Attributes& a) { a.floats["scale"] = INFINITY; }), "finite");
  check_refused(refused_spec([](Attributes& a) { a.floats["softcap"] = -1.0f; }), "negative");
  check_refused(refused_spec([](Attributes& a) { a.floats["qk_norm_epsilon"] = -1.0f; }),
                "negative");
}

TEST(unknown_spellings_name_what_is_accepted) {
  check_refused(refused_spec([](Attributes& a) { a.strings["qk_norm"] = "batch"; }),
                "attribute qk_norm is not a known value, got 'batch'.\nNote: accepted: 'rms', "
                "'layer', 'l2'.");
  check_refused(refused_spec([](Attributes& a) { a.strings["plugin_version"] = "2"; }),
                "plugin_version must be '1', got '2'");
}

TEST(roles_place_packed_inputs) {
  const InputPositions packed = input_positions("query,key,value,past_key,past_value", 5);
  CHECK(packed[kPastKey] == 3 && packed[kPastValue] == 4 && packed[kCosCache] == kAbsent);
  const InputPositions positional = input_positions("", 4);
  CHECK(positional[kQNormWeight] == 3 && positional[kKNormWeight] == kAbsent);
}

TEST(wrong_roles_are_refused) {
  const auto roles = [](const char* text, size_t count) {
    return refusal([=] { input_positions(text, count); });
  };
  check_refused(roles("query,key,values", 3), "got 'values'");
  check_refused(roles("query,key,key", 3), "got 'key' twice");
  check_refused(roles("query,key,value", 4), "got 3 for 4");
  check_refused(roles("query,,value", 3), "got ''");
  check_refused(refusal([] { input_positions("", 19); }), "at most 18 inputs, got 19");
  check_refused(refusal([] { check_output_roles("", 2); }), "got 2");
  check_refused(refusal([] { check_output_roles("output,present_key", 3); }), "output_roles");
}

TensorType tensor(ElementType type, Shape shape) { return {true, type, true, std::move(shape)}; }

// B 2, Sq 3, Skv 3, H 4, Hkv 2, D 8.
Signature plain() {
  Signature s = {};
  s.spec = read_spec(Attributes());
  s.num_outputs = 1;
  s.inputs[kQuery] = tensor(ElementType::kFloat32, {2, 3, 32});
  s.inputs[kKey] = tensor(ElementType::kFloat32, {2, 3, 16});
  s.inputs[kValue] = tensor(ElementType::kFloat32, {2, 3, 16});
  return s;
}

std::string refused(const std::function<void(Signature&)>& change) {
  Signature s = plain();
  change(s);
  return refusal([&] { check_signature(s); });
}

void add(Signature& s, Input input, Shape shape, ElementType type = ElementType::kFloat32) {
  s.inputs[input] = tensor(type, std::move(shape));
}

void add_rotary(Signature& s, Shape shape) {
  s.spec.rotary = qkexport::Rotary::kAfterNorm;
  add(s, kCosCache, shape);
  add(s, kSinCache, shape);
}

TEST(a_plain_signature_is_accepted) {
  CHECK(refused([](Signature&) {}).empty());
  CHECK(refused([](Signature& s) { s.inputs[kQuery].shape = {-1, -1, -1}; }).empty());
  CHECK(refused([](Signature& s) { s.inputs[kQuery].has_shape = false; }).empty());
}

TEST(halves_of_pairs_are_refused) {
  check_refused(refused([](Signature& s) { add(s, kPastKey, {2, 2, 5, 8}); }),
                "needs both of past_key and past_value, got only past_key");
  check_refused(refused([](Signature& s) { add(s, kSinCache, {2, 3, 4}); }), "only sin_cache");
}

TEST(companions_are_demanded) {
  check_refused(refused([](Signature& s) { s.spec.rotary = qkexport::Rotary::kAfterNorm; }),
                "exactly when rotary is not 'none'");
  check_refused(refused([](Signature& s) { add(s, kPositionIds, {2, 3}, ElementType::kInt64); }),
                "takes position_ids only with rotary");
  check_refused(refused([](Signature& s) {
                  s.spec.normalize_key = false;
                  add(s, kKNormWeight, {8});
                }),
                "takes k_norm_weight only with normalize_key 1");
  check_refused(refused([](Signature& s) { s.spec.kv_cache = qkexport::KvCache::kStatic; }),
                "with a static cache");
}

TEST(wrong_types_are_refused) {
  check_refused(refused([](Signature& s) { s.inputs[kQuery].type = ElementType::kInt64; }),
                "query must be float32, float16 or bfloat16, got int64");
  check_refused(refused([](Signature& s) { s.inputs[kKey].type = ElementType::kFloat16; }),
                "key must be float32, got float16");
  check_refused(refused([](Signature& s) { add(s, kHeadScale, {4}, ElementType::kFloat16); }),
                "head_scale must be float32");
  check_refused(refused([](Signature& s) { add(s, kAttnMask, {3, 3}, ElementType::kInt64); }),
                "attn_mask must be bool or float32");
}

TEST(wrong_projections_are_refused) {
  check_refused(refused([](Signature& s) { s.inputs[kKey].shape = {2, 2, 3, 8}; }),
                "share rank 3 or 4");
  check_refused(refused([](Signature& s) { s.inputs[kQuery].shape = {2, 3, 30}; }),
                "multiple of its 4 heads");
  check_refused(refused([](Signature& s) { s.inputs[kKey].shape = {1, 3, 16}; }), "one batch size");
  check_refused(refused([](Signature& s) { s.inputs[kValue].shape = {2, 4, 16}; }), "equally long");
  check_refused(refused([](Signature& s) { s.inputs[kKey].shape = {2, 3, 20}; }),
                "head_dim of query and key must be equal, got 8 and 10");
  check_refused(refused([](Signature& s) { s.inputs[kValue].shape = {2, 3, 0}; }),
                "at least one channel");
}

TEST(wrong_norm_parameters_are_refused) {
  check_refused(refused([](Signature& s) { add(s, kQNormWeight, {16}); }),
                "q_norm_weight must be [8] or [4,8], got float32[16]");
  check_refused(refused([](Signature& s) {
                  s.spec.norm_axis = qkexport::NormAxis::kHidden;
                  add(s, kKNormBias, {8});
                }),
                "k_norm_bias must be [16]");
  check_refused(refused([](Signature& s) {
                  add(s, kSegmentEnds, {2}, ElementType::kInt64);
                  add(s, kQNormWeight, {8});
                }),
                "q_norm_weight must be [2,8] or [2,4,8]");
}

TEST(wrong_masks_scales_and_caches_are_refused) {
  check_refused(refused([](Signature& s) { add(s, kAttnMask, {4, 3}); }),
                "attn_mask must broadcast to [2,4,3,3]");
  check_refused(refused([](Signature& s) { add(s, kHeadScale, {3}); }),
                "head_scale must be [1], [4] or broadcast to [2,4,3,1]");
  check_refused(refused([](Signature& s) {
                  add(s, kPastKey, {2, 2, 5, 7});
                  add(s, kPastValue, {2, 2, 5, 8});
                }),
                "past_key must be [2,2,5,8]");
  check_refused(refused([](Signature& s) { add(s, kKvLengths, {3}, ElementType::kInt64); }),
                "kv_lengths must be [2]");
  check_refused(refused([](Signature& s) {
                  add(s, kSegmentEnds, {2}, ElementType::kInt64);
                  s.inputs[kKey].shape = s.inputs[kValue].shape = {2, 5, 16};
                }),
                "segment_ends needs Sq == Skv, got 3 and 5");
}

TEST(wrong_rotary_inputs_are_refused) {
  check_refused(refused([](Signature& s) { add_rotary(s, {2, 3, 3}); }), "must be 4 or 8 wide");
  check_refused(refused([](Signature& s) { add_rotary(s, {7, 4}); }), "needs position_ids");
  check_refused(refused([](Signature& s) { add_rotary(s, {2, 5, 4}); }), "must be [2,3,?]");
  check_refused(refused([](Signature& s) { add_rotary(s, {2, 4, 3, 4}); }),
                "an entry for each query head");
  check_refused(refused([](Signature& s) {
                  add_rotary(s, {1, 3, 4});
                  s.inputs[kKey].shape = s.inputs[kValue].shape = {2, 5, 16};
                }),
                "needs key_cos_cache when query and key lengths differ");
  check_refused(refused([](Signature& s) {
                  add_rotary(s, {1, 3, 4});
                  add(s, kPositionIds, {2, 3}, ElementType::kInt64);
                }),
                "position_ids needs a cos_cache of rank 2");
  check_refused(refused([](Signature& s) {
                  add_rotary(s, {1, 3, 4});
                  s.spec.rotary_dim = 10;
                }),
                "must not exceed head_dim 8");
}

}  // namespace
