// The kernels around attention, which depend on the type and hardly on the sizes.
#pragma once

#include "device/combine_kernel.cuh"
#include "device/hidden_statistics_kernel.cuh"
#include "device/key_prologue_kernel.cuh"
#include "kernels.h"
#include "launch.h"

namespace qkexport::cuda {

template <class T, int kPitch>
Status launch_key_prologue(const KernelArguments& arguments, int64_t blocks, Stream stream) {
  constexpr std::size_t kSharedBytes = key_tile_rows(kPitch) * kPitch * sizeof(T);
  return launch(key_prologue_kernel<T, kPitch>, {blocks, kAttentionWarps * kWarpSize, kSharedBytes},
                stream, arguments);
}

template <class T>
Status launch_hidden_statistics(const KernelArguments& arguments, int64_t blocks, Stream stream) {
  return launch(hidden_statistics_kernel<T>, {blocks, kAttentionWarps * kWarpSize, 0}, stream,
                arguments);
}

template <class T>
Status launch_combine(const KernelArguments& arguments, int64_t blocks, Stream stream) {
  return launch(combine_kernel<T>, {blocks, kCombineThreads, 0}, stream, arguments);
}

}  // namespace qkexport::cuda
