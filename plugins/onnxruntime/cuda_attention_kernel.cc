// QKNormAttention on the CUDA kernels, enqueued on the stream that the session computes on.
//
// Nothing here waits for the device: values of tensors stay there, and workspace is taken and given
// back in the order of the stream.
#include "attention_kernel.h"
#include "attention_node.h"
#include "device_workspace.h"
#include "ort_api.h"
#include "qkexport/cuda/attention_cuda.h"

namespace qkexport::ort {
namespace {

void check_status(Status status, const AttentionParams& params) {
  if (status == Status::kSuccess) return;
  if (status == Status::kUnsupportedSize) {
    op::refuse("must be of sizes the CUDA kernels have",
               "head_dim " + std::to_string(params.head_dim) + ", head_dim_v " +
                   std::to_string(params.head_dim_v));
  }
  op::refuse("must be a call that the CUDA kernels can launch",
             "status " + std::to_string(static_cast<int>(status)));
}

class CudaAttentionKernel : public AttentionKernel {
 public:
  explicit CudaAttentionKernel(const OrtKernelInfo* info) : node_(info) {}

  void compute(OrtKernelContext* context) const override {
    node_.naming([&] {
      op::InputPointers inputs;
      const op::Signature signature = node_.read_inputs(context, inputs);
      const op::OutputPointers outputs = node_.make_outputs(context, signature);
      const AttentionParams params = op::fill_params(signature, inputs, outputs);
      void* raw_stream = nullptr;
      check(api().KernelContext_GetGPUComputeStream(context, &raw_stream));
      const auto stream = static_cast<cuda::Stream>(raw_stream);
      const size_t bytes = cuda::workspace_size(params);
      const DeviceWorkspace workspace(bytes, stream);
      check_status(cuda::run(params, workspace.data(), bytes, stream), params);
    });
  }

 private:
  AttentionNode node_;
};

}  // namespace

std::unique_ptr<AttentionKernel> make_cuda_kernel(const OrtKernelInfo* info) {
  return std::make_unique<CudaAttentionKernel>(info);
}

}  // namespace qkexport::ort
