#include "launchers/simt_attention.cuh"

namespace qkexport::cuda {

template Status launch_simt_attention<Half, 512>(const KernelArguments&, int64_t, Stream);

}  // namespace qkexport::cuda
