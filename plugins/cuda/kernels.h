// The launchers that the instantiation files define, one for each kernel and key.
#pragma once

#include <cstdint>

#include "device/element_types.cuh"
#include "kernel_arguments.h"
#include "qkexport/cuda/attention_cuda.h"

namespace qkexport::cuda {

// `key_block`: that of the device, LaunchPlan::key_block.
template <class T, int kHeadDim>
Status launch_attention(const KernelArguments& arguments, int64_t blocks, int key_block,
                        Stream stream);

template <class T, int kHeadDim>
Status launch_simt_attention(const KernelArguments& arguments, int64_t blocks, Stream stream);

template <class T, int kPitch>
Status launch_key_prologue(const KernelArguments& arguments, int64_t blocks, Stream stream);

template <class T>
Status launch_hidden_statistics(const KernelArguments& arguments, int64_t blocks, Stream stream);

template <class T>
Status launch_combine(const KernelArguments& arguments, int64_t blocks, Stream stream);

}  // namespace qkexport::cuda
