// Runs a TensorRT engine once, or many times to measure it.
//
//   run_engine ENGINE [--plugin LIBRARY] [--shape NAME=2x59x32]... [--input NAME=FILE]...
//              [--output-dir FOLDER] [--repeat N]
//
// Inputs are raw little-endian files in the engine's own types; those that are not given are zero.
// Dimensions that vary take the first profile's optimum unless --shape says otherwise.

#include <NvInferRuntime.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::ICudaEngine;
using nvinfer1::IExecutionContext;
using nvinfer1::TensorIOMode;

class Logger : public nvinfer1::ILogger {
 public:
  void log(Severity severity, char const* text) noexcept override {
    if (severity <= Severity::kWARNING) std::cerr << "TensorRT: " << text << '\n';
  }
};

struct Options {
  std::string engine;
  std::string plugin;
  std::string output_dir;
  std::map<std::string, std::string> shapes;
  std::map<std::string, std::string> inputs;
  int repeat = 1;
};

void check(cudaError_t status, char const* call) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
  }
}

void require(bool good, std::string const& text) {
  if (!good) throw std::runtime_error(text);
}

std::pair<std::string, std::string> split(std::string const& text) {
  size_t const place = text.rfind('=');
  require(place != std::string::npos && place > 0, "NAME=VALUE was expected, got " + text);
  return {text.substr(0, place), text.substr(place + 1)};
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string const name = argv[i];
    if (name.rfind("--", 0) != 0) {
      options.engine = name;
      continue;
    }
    require(++i < argc, "a value was expected after " + name);
    if (name == "--plugin") {
      options.plugin = argv[i];
    } else if (name == "--output-dir") {
      options.output_dir = argv[i];
    } else if (name == "--repeat") {
      options.repeat = std::max(1, std::atoi(argv[i]));
    } else if (name == "--shape") {
      options.shapes.insert(split(argv[i]));
    } else if (name == "--input") {
      options.inputs.insert(split(argv[i]));
    } else {
      throw std::runtime_error("option is not known: " + name);
    }
  }
  require(!options.engine.empty(), "the path of an engine was expected");
  return options;
}

std::vector<char> read_file(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Dims parse_dims(std::string const& text) {
  Dims dims{};
  std::istringstream stream(text);
  for (std::string size; std::getline(stream, size, 'x');) {
    require(dims.nbDims < Dims::MAX_DIMS, "too many dimensions in " + text);
    dims.d[dims.nbDims++] = std::strtoll(size.c_str(), nullptr, 10);
  }
  return dims;
}

std::string to_text(Dims const& dims) {
  std::string text;
  for (int i = 0; i < dims.nbDims; ++i) text += (i ? "x" : "") + std::to_string(dims.d[i]);
  return text;
}

size_t num_elements(Dims const& dims) {
  size_t count = 1;
  for (int i = 0; i < dims.nbDims; ++i) count *= static_cast<size_t>(dims.d[i]);
  return count;
}

size_t element_bits(DataType type) {
  switch (type) {
    case DataType::kINT64:
      return 64;
    case DataType::kFLOAT:
    case DataType::kINT32:
      return 32;
    case DataType::kHALF:
    case DataType::kBF16:
      return 16;
    case DataType::kINT4:
    case DataType::kFP4:
      return 4;
    default:  // int8, uint8, bool and the float8 types
      return 8;
  }
}

// A tensor of the engine: its bytes on the host and its place on the GPU.
class Tensor {
 public:
  Tensor(size_t num_bytes) : host(num_bytes) {
    // TensorRT may pass the address of an empty tensor on: it must not be null.
    check(cudaMalloc(&device, std::max<size_t>(num_bytes, 1)), "cudaMalloc");
  }
  ~Tensor() { cudaFree(device); }
  Tensor(Tensor const&) = delete;
  Tensor& operator=(Tensor const&) = delete;

  std::vector<char> host;
  void* device = nullptr;
};

using Tensors = std::map<std::string, std::unique_ptr<Tensor>>;

size_t num_bytes(ICudaEngine const& engine, std::string const& name, Dims const& dims) {
  return (num_elements(dims) * element_bits(engine.getTensorDataType(name.c_str())) + 7) / 8;
}

std::vector<std::string> names_of(ICudaEngine const& engine, TensorIOMode mode) {
  std::vector<std::string> names;
  for (int i = 0; i < engine.getNbIOTensors(); ++i) {
    char const* name = engine.getIOTensorName(i);
    if (engine.getTensorIOMode(name) == mode) names.emplace_back(name);
  }
  return names;
}

Dims shape_of(ICudaEngine const& engine, Options const& options, std::string const& name) {
  auto const given = options.shapes.find(name);
  if (given != options.shapes.end()) return parse_dims(given->second);
  Dims const dims = engine.getTensorShape(name.c_str());
  for (int i = 0; i < dims.nbDims; ++i) {
    if (dims.d[i] < 0) {
      return engine.getProfileShape(name.c_str(), 0, nvinfer1::OptProfileSelector::kOPT);
    }
  }
  return dims;
}

void fill_inputs(ICudaEngine const& engine, IExecutionContext& context, Options const& options,
                 Tensors& tensors) {
  for (auto const& name : names_of(engine, TensorIOMode::kINPUT)) {
    Dims const dims = shape_of(engine, options, name);
    require(context.setInputShape(name.c_str(), dims),
            "shape " + to_text(dims) + " of " + name + " is outside of the engine's profile");
    auto tensor = std::make_unique<Tensor>(num_bytes(engine, name, dims));
    auto const file = options.inputs.find(name);
    if (file != options.inputs.end()) {
      std::vector<char> bytes = read_file(file->second);
      require(bytes.size() == tensor->host.size(),
              file->second + " must hold " + std::to_string(tensor->host.size()) + " bytes for " +
                  name + ", got " + std::to_string(bytes.size()));
      tensor->host = std::move(bytes);
    }
    check(cudaMemcpy(tensor->device, tensor->host.data(), tensor->host.size(),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
    context.setTensorAddress(name.c_str(), tensor->device);
    tensors[name] = std::move(tensor);
  }
}

void make_outputs(ICudaEngine const& engine, IExecutionContext& context, Tensors& tensors) {
  require(context.inferShapes(0, nullptr) == 0, "an input has no shape");
  for (auto const& name : names_of(engine, TensorIOMode::kOUTPUT)) {
    Dims const dims = context.getTensorShape(name.c_str());
    for (int i = 0; i < dims.nbDims; ++i) {
      require(dims.d[i] >= 0, "the shape of " + name + " is not known before the run");
    }
    auto tensor = std::make_unique<Tensor>(num_bytes(engine, name, dims));
    context.setTensorAddress(name.c_str(), tensor->device);
    tensors[name] = std::move(tensor);
  }
}

double run(IExecutionContext& context, int repeat) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) {
    require(context.enqueueV3(stream), "TensorRT did not run the engine");
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - start;
  cudaStreamDestroy(stream);
  return took.count() / repeat;
}

void keep_outputs(ICudaEngine const& engine, IExecutionContext const& context,
                  Options const& options, Tensors& tensors) {
  for (auto const& name : names_of(engine, TensorIOMode::kOUTPUT)) {
    Tensor& tensor = *tensors[name];
    check(cudaMemcpy(tensor.host.data(), tensor.device, tensor.host.size(), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    std::cout << name << ' ' << to_text(context.getTensorShape(name.c_str())) << ' '
              << tensor.host.size() << " bytes\n";
    if (options.output_dir.empty()) continue;
    std::string const path = options.output_dir + "/" + name + ".bin";
    std::ofstream file(path, std::ios::binary);
    file.write(tensor.host.data(), static_cast<std::streamsize>(tensor.host.size()));
    require(file.good(), "cannot write " + path);
  }
}

void run_engine(Options const& options) {
  std::vector<char> const plan = read_file(options.engine);
  Logger logger;
  std::unique_ptr<nvinfer1::IRuntime> runtime(nvinfer1::createInferRuntime(logger));
  require(runtime != nullptr, "TensorRT has no runtime here: is there a GPU with its driver?");
  if (!options.plugin.empty()) {
    require(runtime->getPluginRegistry().loadLibrary(options.plugin.c_str()) != nullptr,
            "cannot load the plugin library " + options.plugin);
  }
  std::unique_ptr<ICudaEngine> engine(runtime->deserializeCudaEngine(plan.data(), plan.size()));
  require(engine != nullptr, "TensorRT does not load " + options.engine +
                                 ": its manifest says for which version and GPU it was built");
  std::unique_ptr<IExecutionContext> context(engine->createExecutionContext());
  require(context != nullptr, "TensorRT has no memory for a context");
  Tensors tensors;
  fill_inputs(*engine, *context, options, tensors);
  make_outputs(*engine, *context, tensors);
  double const milliseconds = run(*context, options.repeat);
  keep_outputs(*engine, *context, options, tensors);
  std::cout << milliseconds << " ms a run, mean of " << options.repeat << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run_engine(parse(argc, argv));
    return 0;
  } catch (std::exception const& error) {
    std::cerr << "Error: " << error.what() << '\n';
    return 1;
  }
}
