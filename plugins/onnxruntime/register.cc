// The entry point that ONNX Runtime calls when it loads this library.
#include <onnxruntime_c_api.h>

#include <string>

#include "custom_op.h"
#include "ort_api.h"

namespace qkexport::ort {
namespace {

const OrtApi* g_api = nullptr;

// A status needs an API; version 1 has all it takes, and every runtime has version 1.
OrtStatus* refuse_runtime(const OrtApiBase* base) {
  const OrtApi* oldest = base->GetApi(1);
  if (oldest == nullptr) return nullptr;
  const std::string message = std::string("qkexport's operators need ONNX Runtime 1.17 or newer") +
                              ", got " + base->GetVersionString() +
                              ".\nHint: pip install -U onnxruntime";
  return oldest->CreateStatus(ORT_NOT_IMPLEMENTED, message.c_str());
}

// Sessions refer to the domain until they end, so it lives as long as the library.
OrtCustomOpDomain* domain() {
  static OrtCustomOpDomain* const kDomain = [] {
    OrtCustomOpDomain* created = nullptr;
    check(api().CreateCustomOpDomain("qkexport", &created));
    for (size_t i = 0; attention_op(i) != nullptr; ++i) {
      check(api().CustomOpDomain_Add(created, attention_op(i)));
    }
    return created;
  }();
  return kDomain;
}

}  // namespace

void set_api(const OrtApi* api) { g_api = api; }
const OrtApi& api() { return *g_api; }

}  // namespace qkexport::ort

extern "C" __attribute__((visibility("default"))) OrtStatus* ORT_API_CALL
RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  using namespace qkexport::ort;
  const OrtApi* api = base->GetApi(kApiVersion);
  if (api == nullptr) return refuse_runtime(base);
  set_api(api);
  return guarded([&] { check(qkexport::ort::api().AddCustomOpDomain(options, domain())); });
}
