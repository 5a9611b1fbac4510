// Workspace of one call.
#pragma once

#include <onnxruntime_c_api.h>

#include <string>

#include "ort_api.h"

namespace qkexport::ort {

// Memory from the session's arena: nothing reaches the system allocator in steady state.
class Workspace {
 public:
  Workspace(const OrtKernelContext* context, size_t bytes) {
    OrtMemoryInfo* info = nullptr;
    check(api().CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &info));
    OrtStatus* status = api().KernelContext_GetAllocator(context, info, &allocator_);
    api().ReleaseMemoryInfo(info);
    check(status);
    data_ = allocator_->Alloc(allocator_, bytes);
    if (data_ != nullptr) return;
    api().ReleaseAllocator(allocator_);
    throw op::Refusal("QKNormAttention needs workspace, got no memory for " +
                      std::to_string(bytes) + " bytes.");
  }
  ~Workspace() {
    allocator_->Free(allocator_, data_);
    api().ReleaseAllocator(allocator_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }

 private:
  OrtAllocator* allocator_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace qkexport::ort
