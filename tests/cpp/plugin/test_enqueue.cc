// What the plugin does with a call, held against stand-ins for the kernels.
#include <memory>
#include <string>
#include <vector>

#include "../testing.h"
#include "allocation_count.h"
#include "attention_fields.h"
#include "attention_plugin.h"
#include "log.h"
#include "recording_kernels.h"

namespace {

using nvinfer1::DataType;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginTensorDesc;
using nvinfer1::TensorFormat;
using plugin_test::AttentionFields;
using plugin_test::dims;
using plugin_test::last_launch;
using plugin_test::launch_status;
using qkexport::trt::AttentionPlugin;
using qkexport::trt::Fields;

class Recorder : public nvinfer1::ILogger, public nvinfer1::ILoggerFinder {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity <= Severity::kERROR) text += message;
  }
  ILogger* findLogger() override { return this; }
  std::string text;
};

Recorder& recorder() {
  static Recorder recorder;
  qkexport::trt::set_logger_finder(&recorder);
  return recorder;
}

std::unique_ptr<AttentionPlugin> plugin(AttentionFields fields = {}) {
  return std::make_unique<AttentionPlugin>(std::make_shared<const Fields>(fields.collection()));
}

PluginTensorDesc desc(std::initializer_list<int64_t> sizes, DataType type = DataType::kHALF) {
  return {dims(sizes), type, TensorFormat::kLINEAR, 1.0f};
}

AttentionFields cached(const char* kv_cache) {
  AttentionFields fields;
  fields.texts["kv_cache"] = kv_cache;
  fields.texts["causal"] = "lower_right";
  fields.texts["input_roles"] = "query,key,value,q_norm_weight,past_key,past_value,kv_lengths";
  fields.texts["output_roles"] = "output,present_key,present_value";
  return fields;
}

// 2 heads of 16 channels on one key/value head, 3 new tokens, 40 rows of cache.
std::vector<PluginTensorDesc> cached_inputs() {
  return {desc({1, 3, 32}),     desc({1, 3, 16}),     desc({1, 3, 16}),           desc({16}),
          desc({1, 1, 40, 16}), desc({1, 1, 40, 16}), desc({1}, DataType::kINT64)};
}

void* address(uintptr_t value) { return reinterpret_cast<void*>(value); }

TEST(enqueue_hands_addresses_shapes_workspace_and_stream_to_the_kernels) {
  const auto made = plugin(cached("concat"));
  const auto inputs = cached_inputs();
  const void* in[] = {address(1), address(2), address(3), address(4),
                      address(5), address(6), address(7)};
  void* out[] = {address(8), address(9), address(10)};
  auto* stream = reinterpret_cast<cudaStream_t>(address(12));
  CHECK(made->onShapeChange(inputs.data(), 7, nullptr, 3) == 0);
  CHECK(made->enqueue(inputs.data(), nullptr, in, out, address(11), stream) == 0);
  const qkexport::AttentionParams& p = last_launch().params;
  CHECK(p.query.data == in[0] && p.key.data == in[1] && p.value.data == in[2]);
  CHECK(p.q_norm_weight.data == in[3] && p.k_norm_weight.data == nullptr);
  CHECK(p.past_key.data == in[4] && p.past_value.data == in[5] && p.kv_lengths == in[6]);
  CHECK(p.output.data == out[0] && p.present_key.data == out[1] && p.present_value.data == out[2]);
  CHECK(p.seqlen_q == 3 && p.seqlen_past == 40 && p.seqlen_total == 43 && p.head_dim == 16);
  CHECK(p.num_heads == 2 && p.num_kv_heads == 1 && p.scale == 0.25f);
  CHECK(p.causal == qkexport::Causal::kLowerRight && p.dtype == qkexport::DataType::kFloat16);
  CHECK(last_launch().workspace == address(11) && last_launch().stream == stream);
}

TEST(enqueue_allocates_nothing) {
  const auto made = plugin(cached("static"));
  const auto inputs = cached_inputs();
  const void* in[7] = {};
  void* out[3] = {};
  CHECK(made->onShapeChange(inputs.data(), 7, nullptr, 3) == 0);
  const int64_t before = plugin_test::allocations();
  for (int i = 0; i < 3; ++i) {
    CHECK(made->enqueue(inputs.data(), nullptr, in, out, nullptr, nullptr) == 0);
  }
  CHECK(plugin_test::allocations() == before);
}

TEST(packed_inputs_are_known_without_an_announcement) {
  const auto made = plugin(cached("concat"));
  const auto inputs = cached_inputs();
  const void* in[7] = {};
  void* out[3] = {};
  const int before = last_launch().count;
  CHECK(made->enqueue(inputs.data(), nullptr, in, out, nullptr, nullptr) == 0);
  CHECK(last_launch().count == before + 1);
}

TEST(shapes_are_those_of_the_call_and_not_those_announced) {
  const auto made = plugin();
  const std::vector<PluginTensorDesc> announced = {desc({1, 9, 32}), desc({1, 9, 16}),
                                                   desc({1, 9, 16})};
  const std::vector<PluginTensorDesc> called = {desc({2, 4, 32}), desc({2, 4, 16}),
                                                desc({2, 4, 16})};
  const void* in[3] = {};
  void* out[1] = {};
  CHECK(made->onShapeChange(announced.data(), 3, nullptr, 1) == 0);
  CHECK(made->enqueue(called.data(), nullptr, in, out, nullptr, nullptr) == 0);
  CHECK(last_launch().params.batch_size == 2 && last_launch().params.seqlen_q == 4);
}

TEST(positional_inputs_are_counted_by_the_announcement_and_kept_by_clones) {
  AttentionFields fields;
  fields.texts["input_roles"] = fields.texts["output_roles"] = "";
  const auto made = plugin(fields);
  const std::vector<PluginTensorDesc> inputs = {desc({1, 3, 32}), desc({1, 3, 16}),
                                                desc({1, 3, 16}), desc({16})};
  const void* in[] = {address(1), address(2), address(3), address(4)};
  void* out[1] = {};
  CHECK(made->onShapeChange(inputs.data(), 4, nullptr, 1) == 0);
  const std::unique_ptr<nvinfer1::IPluginV3> clone(made->clone());
  auto* runtime = static_cast<nvinfer1::IPluginV3OneRuntime*>(
      clone->getCapabilityInterface(nvinfer1::PluginCapabilityType::kRUNTIME));
  CHECK(runtime->enqueue(inputs.data(), nullptr, in, out, nullptr, nullptr) == 0);
  CHECK(last_launch().params.q_norm_weight.data == in[3]);
}

TEST(a_launch_that_fails_is_logged_and_reported) {
  recorder().text.clear();
  const auto made = plugin();
  const std::vector<PluginTensorDesc> inputs = {desc({1, 3, 32}), desc({1, 3, 16}),
                                                desc({1, 3, 16})};
  const void* in[3] = {};
  void* out[1] = {};
  launch_status() = qkexport::Status::kLaunchFailed;
  CHECK(made->enqueue(inputs.data(), nullptr, in, out, nullptr, nullptr) != 0);
  launch_status() = qkexport::Status::kSuccess;
  CHECK(recorder().text.find("must run on this device, got status 6") != std::string::npos);
}

TEST(workspace_is_asked_for_between_the_ends_of_the_profile) {
  const auto made = plugin();
  const auto input = [](int64_t width) {
    return DynamicPluginTensorDesc{desc({1, -1, width}), dims({1, 5, width}), dims({1, 90, width}),
                                   dims({1, 40, width})};
  };
  const std::vector<DynamicPluginTensorDesc> inputs = {input(32), input(16), input(16)};
  CHECK(made->configurePlugin(inputs.data(), 3, nullptr, 1) == 0);
  CHECK(made->getWorkspaceSize(inputs.data(), 3, nullptr, 1) == 5090);
}

TEST(only_a_static_cache_may_share_memory) {
  const auto concat = plugin(cached("concat")), in_place = plugin(cached("static"));
  for (int32_t output = 0; output < 3; ++output) CHECK(concat->getAliasedInput(output) == -1);
  CHECK(in_place->getAliasedInput(0) == -1);
  CHECK(in_place->getAliasedInput(1) == 4);
  CHECK(in_place->getAliasedInput(2) == 5);
  CHECK(static_cast<nvinfer1::IPluginV3OneBuild&>(*in_place).getInterfaceInfo().major == 2);
}

// Position 3 is q_norm_weight, 4 attn_mask, 5 head_scale, 6 kv_lengths, 7 the output.
std::string accepted_types(int32_t position, DataType tensor, TensorFormat format) {
  AttentionFields fields;
  fields.texts["input_roles"] = "query,key,value,q_norm_weight,attn_mask,head_scale,kv_lengths";
  const auto made = plugin(fields);
  std::string accepted;
  for (const auto& [letter, type] :
       std::vector<std::pair<char, DataType>>{{'f', DataType::kFLOAT},
                                              {'h', DataType::kHALF},
                                              {'b', DataType::kBF16},
                                              {'?', DataType::kBOOL},
                                              {'l', DataType::kINT64},
                                              {'i', DataType::kINT32},
                                              {'c', DataType::kINT8},
                                              {'8', DataType::kFP8},
                                              {'u', DataType::kUINT8}}) {
    std::vector<DynamicPluginTensorDesc> tensors(8);
    for (DynamicPluginTensorDesc& other : tensors) other.desc = desc({1}, tensor);
    tensors[static_cast<size_t>(position)].desc = {dims({1}), type, format, 1.0f};
    if (made->supportsFormatCombination(position, tensors.data(), 7, 1)) accepted += letter;
  }
  return accepted;
}

TEST(formats_are_those_of_the_type_matrix_and_nothing_else) {
  for (const auto& [letter, tensor] : std::vector<std::pair<std::string, DataType>>{
           {"f", DataType::kFLOAT}, {"h", DataType::kHALF}, {"b", DataType::kBF16}}) {
    const std::string or_float = letter == "f" ? "f" : "f" + letter;
    CHECK(accepted_types(0, tensor, TensorFormat::kLINEAR) == "fhb");
    for (const int32_t same : {1, 2, 7}) {
      CHECK(accepted_types(same, tensor, TensorFormat::kLINEAR) == letter);
    }
    CHECK(accepted_types(3, tensor, TensorFormat::kLINEAR) == or_float);
    CHECK(accepted_types(4, tensor, TensorFormat::kLINEAR) == or_float + "?");
    CHECK(accepted_types(5, tensor, TensorFormat::kLINEAR) == "f");
    CHECK(accepted_types(6, tensor, TensorFormat::kLINEAR) == "l");
    for (int32_t position = 0; position < 8; ++position) {
      CHECK(accepted_types(position, tensor, TensorFormat::kCHW32).empty());
    }
  }
}

TEST(what_is_serialized_makes_the_same_plugin_again) {
  AttentionFields fields = cached("static");
  fields.floats["softcap"] = 1.0f / 3.0f;
  fields.ints["window_left"] = 7;
  const auto made = plugin(fields);
  const Fields again(*made->getFieldsToSerialize());
  CHECK(again.text() == made->getMetadataString());
  CHECK(made->getFieldsToSerialize()->nbFields == fields.collection().nbFields);
  CHECK(std::string(made->getTimingCacheID()) != plugin(cached("static"))->getTimingCacheID());
}

}  // namespace
