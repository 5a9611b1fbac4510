// Stand-ins for the CUDA kernels: they run nothing and remember what they were asked.
#pragma once

#include "qkexport/cuda/attention_cuda.h"

namespace plugin_test {

struct Launch {
  int count = 0;
  qkexport::AttentionParams params = {};
  void* workspace = nullptr;
  qkexport::cuda::Stream stream = nullptr;
};

inline Launch& last_launch() {
  static Launch launch;
  return launch;
}

// What the next launches answer.
inline qkexport::Status& launch_status() {
  static qkexport::Status status = qkexport::Status::kSuccess;
  return status;
}

}  // namespace plugin_test
