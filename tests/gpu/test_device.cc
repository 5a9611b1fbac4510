// What only a device can show: the same bytes on every run, and capture into a CUDA graph.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "device_run.h"
#include "device_tensors.h"
#include "named_problems.h"
#include "qkexport/cuda/attention_cuda.h"

namespace {

using namespace qkexport;
using cases::AttentionCase;
using cases::CaseTensors;

constexpr int kRuns = 20;

AttentionCase prefill() {
  AttentionCase c;
  c.dtype = DataType::kBFloat16;
  c.seqlen_q = c.seqlen_kv = 257;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.rotary = Rotary::kAfterNorm;
  c.rotary_dim = 64;
  c.causal = Causal::kLowerRight;
  return c;
}

// Split keys, combined afterwards.
AttentionCase decode() {
  AttentionCase c = prefill();
  c.seqlen_q = c.seqlen_kv = 1;
  c.seqlen_past = 4095;
  return c;
}

AttentionCase without_tensor_cores() {
  AttentionCase c = prefill();
  c.dtype = DataType::kFloat32;
  return c;
}

// Kernels that no other check uses, more shared memory than comes unasked.
AttentionCase wide_prefill() {
  AttentionCase c = prefill();
  c.dtype = DataType::kFloat16;
  c.head_dim = c.head_dim_v = 256;
  return c;
}

bool same_output(const CaseTensors& a, const CaseTensors& b) {
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    if (!a.buffers[i].is_output) continue;
    if (std::memcmp(a.buffers[i].data.get(), b.buffers[i].data.get(), a.buffers[i].bytes) != 0) {
      return false;
    }
  }
  return true;
}

bool every_run_gives_the_same_bytes(const AttentionCase& c) {
  CaseTensors first = cases::make_tensors(c);
  if (!cases::run_on_device(first).empty()) return false;
  for (int i = 1; i < kRuns; ++i) {
    CaseTensors again = cases::make_tensors(c);
    if (!cases::run_on_device(again).empty() || !same_output(first, again)) return false;
  }
  return true;
}

enum class Outcome { kPassed, kFailed, kSkipped };

// Captures a run, replays the graph twice and compares with a plain run afterwards: where it is the
// first run of its kernels, they are loaded during the capture.
Outcome a_captured_run_replays(const AttentionCase& c) {
  CaseTensors replayed = cases::make_tensors(c);
  const cases::DeviceTensors device(replayed);
  const std::size_t bytes = cuda::workspace_size(device.params());
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (!device.good() || cudaMalloc(&workspace, bytes + 1) != cudaSuccess ||
      cudaStreamCreate(&stream) != cudaSuccess) {
    return Outcome::kFailed;
  }
  const cudaError_t begun = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  if (begun == cudaErrorNotSupported) return Outcome::kSkipped;
  const Status status = cuda::run(device.params(), workspace, bytes, stream);
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  CaseTensors plain = cases::make_tensors(c);
  const bool good = begun == cudaSuccess && status == Status::kSuccess && ended == cudaSuccess &&
                    cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess &&
                    cudaGraphLaunch(executable, stream) == cudaSuccess &&
                    cudaGraphLaunch(executable, stream) == cudaSuccess &&
                    cudaStreamSynchronize(stream) == cudaSuccess && device.fetch(replayed) &&
                    cases::run_on_device(plain).empty() && same_output(plain, replayed);
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaFree(workspace);
  return good ? Outcome::kPassed : Outcome::kFailed;
}

int failed = 0;

void report(const char* name, const char* of, Outcome outcome) {
  static constexpr const char* kWords[] = {"passed", "FAILED",
                                           "SKIPPED: this CUDA runtime has no "
                                           "stream capture"};
  std::printf("%s (%s): %s\n", name, of, kWords[static_cast<int>(outcome)]);
  if (outcome == Outcome::kFailed) ++failed;
}

void check(const char* of, const AttentionCase& c) {
  report("20 runs give the same bytes", of,
         every_run_gives_the_same_bytes(c) ? Outcome::kPassed : Outcome::kFailed);
  report("a captured run replays", of, a_captured_run_replays(c));
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  report("a first run is captured and replays", "head_dim 256",
         a_captured_run_replays(wide_prefill()));
  check("prefill", prefill());
  check("decode", decode());
  check("float32", without_tensor_cores());
  std::printf("%d failed\n", failed);
  return failed == 0 ? 0 : 1;
}
