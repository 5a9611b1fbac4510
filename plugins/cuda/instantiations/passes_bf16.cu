#include "launchers/passes.cuh"

namespace qkexport::cuda {

template Status launch_key_prologue<BFloat16, 128>(const KernelArguments&, int64_t, Stream);
template Status launch_key_prologue<BFloat16, 512>(const KernelArguments&, int64_t, Stream);
template Status launch_hidden_statistics<BFloat16>(const KernelArguments&, int64_t, Stream);
template Status launch_combine<BFloat16>(const KernelArguments&, int64_t, Stream);

}  // namespace qkexport::cuda
