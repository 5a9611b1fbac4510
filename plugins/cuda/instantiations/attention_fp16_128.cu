#include "launchers/attention.cuh"

namespace qkexport::cuda {

template Status launch_attention<Half, 128>(const KernelArguments&, int64_t, int, Stream);

}  // namespace qkexport::cuda
