#include "launchers/simt_attention.cuh"

namespace qkexport::cuda {

template Status launch_simt_attention<BFloat16, 512>(const KernelArguments&, int64_t, Stream);

}  // namespace qkexport::cuda
