// Times run() with CUDA events: time_kernels REPETITIONS [NAME...].
//
// One line a problem: name, median microseconds, TFLOP/s, GB/s of the bytes that must move. Numbers
// are of the kernels alone, without a comparison; REPETITIONS 0 runs each problem once, for tools
// that count what it does.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "device_tensors.h"
#include "named_problems.h"
#include "qkexport/cuda/attention_cuda.h"

namespace {

using namespace qkexport;

// Enough that the launches of one run hide behind the work of those before it.
constexpr int kRunsPerSample = 20;

class Workspace {
 public:
  explicit Workspace(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0 && cudaMalloc(&memory_, bytes) != cudaSuccess) memory_ = nullptr;
  }
  ~Workspace() { cudaFree(memory_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  bool run(const AttentionParams& params, cudaStream_t stream) const {
    return cuda::run(params, memory_, bytes_, stream) == Status::kSuccess;
  }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

// Microseconds of one run; negative where a launch or an event failed.
double sample(const AttentionParams& params, const Workspace& workspace, cudaStream_t stream) {
  cudaEvent_t begin, end;
  if (cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess) return -1.0;
  bool good = cudaEventRecord(begin, stream) == cudaSuccess;
  for (int i = 0; i < kRunsPerSample; ++i) good = workspace.run(params, stream) && good;
  good = cudaEventRecord(end, stream) == cudaSuccess && good;
  float milliseconds = 0.0f;
  good = cudaEventSynchronize(end) == cudaSuccess &&
         cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess && good;
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return good ? 1000.0 * milliseconds / kRunsPerSample : -1.0;
}

double median_microseconds(const AttentionParams& params, const Workspace& workspace,
                           cudaStream_t stream, int repetitions) {
  std::vector<double> samples;
  for (int i = 0; i < repetitions + 1; ++i) {
    const double time = sample(params, workspace, stream);
    if (time < 0.0) return -1.0;
    if (i > 0) samples.push_back(time);  // the first one warms up
  }
  std::nth_element(samples.begin(), samples.begin() + repetitions / 2, samples.end());
  return samples[repetitions / 2];
}

// Microseconds of a run, 0 where it ran once without being timed, negative where something failed.
double time_on_device(const AttentionParams& params, int repetitions) {
  const Workspace workspace(cuda::workspace_size(params));
  cudaStream_t stream = nullptr;
  if (cudaStreamCreate(&stream) != cudaSuccess) return -1.0;
  double time = -1.0;
  if (repetitions > 0) {
    time = median_microseconds(params, workspace, stream, repetitions);
  } else if (workspace.run(params, stream) && cudaStreamSynchronize(stream) == cudaSuccess) {
    time = 0.0;
  }
  cudaStreamDestroy(stream);
  return time;
}

bool time_problem(const gpu::NamedProblem& named, int repetitions) {
  const cases::CaseTensors host = cases::make_tensors(named.problem);
  const cases::DeviceTensors device(host);
  const double time = device.good() ? time_on_device(device.params(), repetitions) : -1.0;
  if (time < 0.0) {
    const char* reason = cudaGetErrorString(cudaGetLastError());
    std::printf("%-18s FAILED: %s\n", named.name.c_str(), reason);
    return false;
  }
  if (time == 0.0) {
    std::printf("%-18s ran\n", named.name.c_str());
    return true;
  }
  const double per_second = 1e6 / time;
  std::printf("%-18s %10.1f %8.1f %8.0f\n", named.name.c_str(), time,
              1e-12 * gpu::flops(named.problem) * per_second,
              1e-9 * gpu::least_bytes(named.problem) * per_second);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: time_kernels REPETITIONS [NAME...]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  bool good = true;
  std::printf("%-18s %10s %8s %8s\n", "problem", "us", "TFLOP/s", "GB/s");
  for (const gpu::NamedProblem& named : gpu::named_problems()) {
    if (!wanted.empty() && std::count(wanted.begin(), wanted.end(), named.name) == 0) continue;
    good = time_problem(named, std::atoi(argv[1])) && good;
  }
  return good ? 0 : 1;
}
