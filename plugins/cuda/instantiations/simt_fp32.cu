#include "launchers/simt_attention.cuh"

namespace qkexport::cuda {

template Status launch_simt_attention<float, 128>(const KernelArguments&, int64_t, Stream);
template Status launch_simt_attention<float, 256>(const KernelArguments&, int64_t, Stream);
template Status launch_simt_attention<float, 512>(const KernelArguments&, int64_t, Stream);

}  // namespace qkexport::cuda
