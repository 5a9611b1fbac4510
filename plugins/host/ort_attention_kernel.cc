// QKNormAttention nodes of ONNX Runtime on a TensorRT plugin, driven by the plugin host.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attention_kernel.h"
#include "attention_node.h"
#include "attribute_readers.h"
#include "engine.h"
#include "ort_plugin.h"
#include "plugin_library.h"
#include "saved_fields.h"
#include "workspace.h"

namespace qkexport::ort {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

const host::PluginId kPlugin = {"QKNormAttention", "1", ""};
constexpr size_t kAlignment = 256;  // of a plugin's workspace, as cudaMalloc aligns

std::atomic<int64_t> g_calls = 0;
std::mutex g_mutex;
std::string g_path;

// Opened once a path and never closed: sessions may end after anything else of this library.
const host::PluginLibrary& plugin_library() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  static std::map<std::string, host::PluginLibrary*> opened;
  if (g_path.empty()) op::refuse("needs a plugin library", "none");
  host::PluginLibrary*& library = opened[g_path];
  if (library == nullptr) library = new host::PluginLibrary(g_path.c_str());
  return *library;
}

nvinfer1::DataType plugin_type(op::ElementType type) {
  switch (type) {
    case op::ElementType::kFloat16:
      return nvinfer1::DataType::kHALF;
    case op::ElementType::kBFloat16:
      return nvinfer1::DataType::kBF16;
    case op::ElementType::kBool:
      return nvinfer1::DataType::kBOOL;
    case op::ElementType::kInt64:
      return nvinfer1::DataType::kINT64;
    default:
      return nvinfer1::DataType::kFLOAT;
  }
}

// The values of a node's attributes, paired with the plugin's fields by name as TensorRT's parser
// pairs them; the roles are those of the tensors really passed.
class NodeFields {
 public:
  NodeFields(const nvinfer1::PluginFieldCollection& declared, const op::AttributeReader& node) {
    for (int32_t i = 0; i < declared.nbFields; ++i) add(declared.fields[i], node);
  }

  nvinfer1::PluginFieldCollection collection() const {
    return {static_cast<int32_t>(fields_.size()), fields_.data()};
  }

 private:
  void add(const PluginField& declared, const op::AttributeReader& node) {
    const char* name = declared.name;
    int64_t integer = 0;
    float real = 0.0f;
    std::string text;
    if (declared.type == PluginFieldType::kINT32 && node.read_int(name, integer)) {
      ints_.push_back(static_cast<int32_t>(integer));
      fields_.emplace_back(name, &ints_.back(), declared.type, 1);
    } else if (declared.type == PluginFieldType::kFLOAT32 && node.read_float(name, real)) {
      floats_.push_back(real);
      fields_.emplace_back(name, &floats_.back(), declared.type, 1);
    } else if (declared.type == PluginFieldType::kCHAR && node.read_string(name, text)) {
      texts_.push_back(text);
      fields_.emplace_back(name, texts_.back().data(), declared.type,
                           static_cast<int32_t>(text.size()));
    }
  }

  std::list<int32_t> ints_;  // lists: the fields point into them
  std::list<float> floats_;
  std::list<std::string> texts_;
  std::vector<PluginField> fields_;
};

// A node's attributes with the packed spelling of a call.
class PackedAttributes : public op::AttributeReader {
 public:
  PackedAttributes(const op::AttributeReader& node, std::string inputs, std::string outputs)
      : node_(node), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  bool read_int(const char* name, int64_t& value) const override {
    return node_.read_int(name, value);
  }
  bool read_float(const char* name, float& value) const override {
    return node_.read_float(name, value);
  }
  bool read_string(const char* name, std::string& value) const override {
    const std::string wanted = name;
    if (wanted != "input_roles" && wanted != "output_roles") return node_.read_string(name, value);
    value = wanted == "input_roles" ? inputs_ : outputs_;
    return true;
  }

 private:
  const op::AttributeReader& node_;
  std::string inputs_;
  std::string outputs_;
};

std::string passed_roles(const op::Signature& signature) {
  std::string roles;
  for (int i = 0; i < op::kNumInputs; ++i) {
    if (!signature.inputs[i].present) continue;
    roles += (roles.empty() ? "" : ",") + std::string(op::kInputNames[i]);
  }
  return roles;
}

nvinfer1::Dims dims_of(const op::Shape& shape) {
  nvinfer1::Dims dims = {};
  dims.nbDims = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), dims.d);
  return dims;
}

// Engine and context for inputs of exactly these types and shapes.
struct Built {
  Built(const host::PluginLibrary& library, const nvinfer1::PluginFieldCollection& fields,
        const host::Profile& profile)
      : engine(library, kPlugin, fields, {profile}), context(engine) {}
  host::Engine engine;
  host::Context context;
};

class PluginAttentionKernel : public AttentionKernel {
 public:
  explicit PluginAttentionKernel(const OrtKernelInfo* info)
      : node_(info),
        library_(plugin_library()),
        roles_(passed_roles(node_.signature())),
        fields_(saved_fields(library_, info, node_, roles_)) {}

  void compute(OrtKernelContext* context) const override {
    node_.naming([&] {
      op::InputPointers inputs;
      const op::Signature signature = node_.read_inputs(context, inputs);
      const op::OutputPointers outputs = node_.make_outputs(context, signature);
      host::Profile profile;
      std::vector<nvinfer1::Dims> shapes;
      std::vector<const void*> passed;
      for (int i = 0; i < op::kNumInputs; ++i) {
        const op::TensorType& type = signature.inputs[i];
        if (!type.present) continue;
        shapes.push_back(dims_of(type.shape));
        profile.push_back({plugin_type(type.type), shapes.back(), shapes.back(), shapes.back()});
        passed.push_back(inputs[i]);
      }
      run(context, profile, shapes, passed, outputs);
    });
  }

 private:
  static std::unique_ptr<host::SavedFields> saved_fields(const host::PluginLibrary& library,
                                                         const OrtKernelInfo* info,
                                                         const AttentionNode& node,
                                                         const std::string& roles) {
    auto& creator = library.creator(kPlugin.name, kPlugin.version, kPlugin.plugin_namespace);
    const nvinfer1::PluginFieldCollection* declared = creator.getFieldNames();
    if (declared == nullptr) host::fail("Plugin creator must name its fields, got none.");
    const char* outputs =
        node.signature().num_outputs == 1 ? "output" : "output,present_key,present_value";
    const NodeFields fields(*declared, PackedAttributes(KernelAttributes(info), roles, outputs));
    return std::make_unique<host::SavedFields>(fields.collection());
  }

  // A context serves one call at a time; its engine is for one set of shapes.
  void run(OrtKernelContext* context, const host::Profile& profile,
           const std::vector<nvinfer1::Dims>& shapes, const std::vector<const void*>& inputs,
           const op::OutputPointers& outputs) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (built_ == nullptr || !same(built_->engine.profile(0), shapes)) {
      built_.reset();
      built_ = std::make_unique<Built>(library_, fields_->collection(), profile);
    }
    built_->context.set_shapes(shapes);
    const Workspace workspace(context, built_->engine.workspace_size(0) + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    const uintptr_t aligned = (address + kAlignment - 1) / kAlignment * kAlignment;
    built_->context.enqueue(inputs.data(), outputs.data(), reinterpret_cast<void*>(aligned),
                            nullptr);
    ++g_calls;
  }

  static bool same(const host::Profile& built, const std::vector<nvinfer1::Dims>& shapes) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const nvinfer1::Dims& known = built[i].max;
      if (known.nbDims != shapes[i].nbDims ||
          !std::equal(known.d, known.d + known.nbDims, shapes[i].d)) {
        return false;
      }
    }
    return true;
  }

  AttentionNode node_;
  const host::PluginLibrary& library_;
  std::string roles_;
  std::unique_ptr<host::SavedFields> fields_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Built> built_;
};

}  // namespace

const std::vector<KernelProvider>& kernel_providers() {
  static const std::vector<KernelProvider> kProviders = {
      {"CPUExecutionProvider", [](const OrtKernelInfo* info) -> std::unique_ptr<AttentionKernel> {
         return std::make_unique<PluginAttentionKernel>(info);
       }}};
  return kProviders;
}

}  // namespace qkexport::ort

void qkexport_ort_plugin_use(const char* path) {
  const std::lock_guard<std::mutex> lock(qkexport::ort::g_mutex);
  qkexport::ort::g_path = path;
}

int64_t qkexport_ort_plugin_calls(void) { return qkexport::ort::g_calls; }
