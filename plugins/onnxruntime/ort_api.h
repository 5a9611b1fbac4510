// ONNX Runtime's C API, with failures as exceptions inside this library.
#pragma once

#include <onnxruntime_c_api.h>

#include <memory>
#include <string>

#include "qkexport/op/refusal.h"

namespace qkexport::ort {

// Shape inference of custom operators came with this version of the API.
constexpr uint32_t kApiVersion = 17;

// Set once by RegisterCustomOps, before anything else of this library can run.
void set_api(const OrtApi* api);
const OrtApi& api();

// An error that the runtime reported; ownership goes back to it.
class RuntimeFailure : public std::exception {
 public:
  explicit RuntimeFailure(OrtStatus* status) : status_(status) {}
  OrtStatus* status() const { return status_; }

 private:
  OrtStatus* status_;
};

inline void check(OrtStatus* status) {
  if (status != nullptr) throw RuntimeFailure(status);
}

// Runs function; whatever it throws becomes a status. Every entry point goes through here.
template <typename Function>
OrtStatus* guarded(Function function) noexcept {
  try {
    function();
    return nullptr;
  } catch (const RuntimeFailure& failure) {
    return failure.status();
  } catch (const op::Refusal& refusal) {
    return api().CreateStatus(ORT_INVALID_ARGUMENT, refusal.what());
  } catch (const std::exception& error) {
    return api().CreateStatus(ORT_FAIL, error.what());
  }
}

struct TypeInfoDeleter {
  void operator()(OrtTypeInfo* info) const { api().ReleaseTypeInfo(info); }
};
struct ShapeInfoDeleter {
  void operator()(OrtTensorTypeAndShapeInfo* info) const {
    api().ReleaseTensorTypeAndShapeInfo(info);
  }
};
using TypeInfo = std::unique_ptr<OrtTypeInfo, TypeInfoDeleter>;
using ShapeInfo = std::unique_ptr<OrtTensorTypeAndShapeInfo, ShapeInfoDeleter>;

}  // namespace qkexport::ort
