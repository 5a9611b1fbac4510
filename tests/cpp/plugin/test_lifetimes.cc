// Plugins come and go, in any order, and leave nothing behind: under a leak check this is the
// proof of who owns what. The plugin is the emulated build, opened as TensorRT opens a library.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "../testing.h"
#include "attention_fields.h"
#include "engine.h"
#include "plugin_library.h"

namespace {

using plugin_test::AttentionFields;
using plugin_test::dims;
using qkexport::host::Context;
using qkexport::host::Engine;
using qkexport::host::HostError;
using qkexport::host::PluginId;
using qkexport::host::PluginLibrary;
using qkexport::host::Profile;

const PluginId kPlugin = {"QKNormAttention", "1", ""};
constexpr int64_t kWidth = 16;
constexpr int kCycles = 1000;

const PluginLibrary& library() {
  static const PluginLibrary kLibrary(QKEXPORT_TEST_PLUGIN);
  return kLibrary;
}

// query [1, seqlen, 2 * 16], key and value [1, seqlen, 16], between two lengths.
Profile profile(int64_t shortest, int64_t longest) {
  const auto input = [&](int64_t width) {
    return qkexport::host::InputProfile{nvinfer1::DataType::kFLOAT, dims({1, shortest, width}),
                                        dims({1, longest, width}), dims({1, longest, width})};
  };
  return {input(2 * kWidth), input(kWidth), input(kWidth)};
}

class Call {
 public:
  explicit Call(int64_t seqlen) : seqlen_(seqlen) {
    std::mt19937 random(static_cast<unsigned>(seqlen));
    std::normal_distribution<float> normal;
    for (const int64_t width : {2 * kWidth, kWidth, kWidth}) {
      inputs_.emplace_back(static_cast<size_t>(seqlen * width));
      for (float& value : inputs_.back()) value = normal(random);
    }
  }

  void announce(Context& context) const {
    context.set_shapes(
        {dims({1, seqlen_, 2 * kWidth}), dims({1, seqlen_, kWidth}), dims({1, seqlen_, kWidth})});
  }

  std::vector<float> run(Context& context, size_t workspace_size) const {
    std::vector<float> output(static_cast<size_t>(seqlen_ * 2 * kWidth), -1.0f);
    std::vector<std::byte> memory(workspace_size + 256);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    auto* workspace = reinterpret_cast<void*>((address + 255) / 256 * 256);
    const void* inputs[] = {inputs_[0].data(), inputs_[1].data(), inputs_[2].data()};
    void* outputs[] = {output.data()};
    context.enqueue(inputs, outputs, workspace, nullptr);
    return output;
  }

 private:
  int64_t seqlen_;
  std::vector<std::vector<float>> inputs_;
};

std::unique_ptr<Engine> build(std::vector<Profile> profiles) {
  AttentionFields fields;
  return std::make_unique<Engine>(library(), kPlugin, fields.collection(), std::move(profiles));
}

std::vector<float> alone(int64_t seqlen) {
  const auto engine = build({profile(seqlen, seqlen)});
  Context context(*engine);
  const Call call(seqlen);
  call.announce(context);
  return call.run(context, engine->workspace_size(0));
}

TEST(a_thousand_engines_and_their_contexts_come_and_go) {
  const Call call(3);
  for (int i = 0; i < kCycles; ++i) {
    const auto engine = build({profile(1, 8)});
    auto first = std::make_unique<Context>(*engine);
    auto second = std::make_unique<Context>(*engine);
    call.announce(*first);
    if (i % 100 == 0) call.run(*first, engine->workspace_size(0));
    (i % 2 == 0 ? first : second).reset();
  }
}

TEST(a_thousand_refusals_leave_nothing) {
  AttentionFields fields;
  fields.texts["qk_norm"] = "rmsnorm";
  int refused = 0;
  for (int i = 0; i < kCycles; ++i) {
    try {
      Engine(library(), kPlugin, fields.collection(), {profile(1, 8)});
    } catch (const HostError&) {
      ++refused;
    }
  }
  CHECK(refused == kCycles);
}

TEST(clones_outlive_what_they_were_cloned_from) {
  AttentionFields fields;
  auto& creator = library().creator("QKNormAttention", "1", "");
  const auto collection = fields.collection();
  std::vector<std::unique_ptr<nvinfer1::IPluginV3>> plugins;
  plugins.emplace_back(creator.createPlugin("node", &collection, nvinfer1::TensorRTPhase::kBUILD));
  for (int i = 0; i < kCycles; ++i) plugins.emplace_back(plugins.back()->clone());
  std::mt19937 random(7);
  std::shuffle(plugins.begin(), plugins.end(), random);
  while (plugins.size() > 1) plugins.pop_back();
  auto* runtime = static_cast<nvinfer1::IPluginV3OneRuntime*>(
      plugins[0]->getCapabilityInterface(nvinfer1::PluginCapabilityType::kRUNTIME));
  CHECK(runtime->getFieldsToSerialize()->nbFields == collection.nbFields);
}

TEST(contexts_of_two_profiles_interleave) {
  const auto engine = build({profile(1, 1), profile(8, 40)});
  Context decode(*engine, 0), prefill(*engine, 1);
  const Call token(1), prompt(33), longer(40);
  const auto expected_token = alone(1), expected_prompt = alone(33), expected_longer = alone(40);
  token.announce(decode);
  prompt.announce(prefill);  // both announced before either runs
  for (int round = 0; round < 3; ++round) {
    CHECK(token.run(decode, engine->workspace_size(0)) == expected_token);
    CHECK(prompt.run(prefill, engine->workspace_size(1)) == expected_prompt);
  }
  longer.announce(prefill);
  CHECK(token.run(decode, engine->workspace_size(0)) == expected_token);
  CHECK(longer.run(prefill, engine->workspace_size(1)) == expected_longer);
}

TEST(a_context_refuses_shapes_of_another_profile) {
  const auto engine = build({profile(1, 1), profile(8, 40)});
  Context decode(*engine, 0);
  bool refused = false;
  try {
    Call(33).announce(decode);
  } catch (const HostError&) {
    refused = true;
  }
  CHECK(refused);
}

TEST(a_library_opens_and_closes_many_times) {
  for (int i = 0; i < 100; ++i) {
    const PluginLibrary opened(QKEXPORT_TEST_PLUGIN);
    CHECK(opened.creator("QKNormAttention", "1", "").getFieldNames()->nbFields == 20);
  }
}

}  // namespace
